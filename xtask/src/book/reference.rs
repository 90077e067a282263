//! Reference pages that are generated: `cargo xtask reference` writes them, and `--check` fails if they have drifted.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use crate::repository::{printed, root, succeed};

/// Writes the pages.
pub(crate) fn write() -> Result<()> {
    for (path, text) in pages()? {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Fails if a page on disk differs from what the code says.
pub(crate) fn check() -> Result<()> {
    for (path, text) in pages()? {
        let kept = fs::read_to_string(&path).unwrap_or_default();
        ensure!(kept == text, "{} has drifted; run `cargo xtask reference`", path.display());
    }
    Ok(())
}

fn pages() -> Result<Vec<(PathBuf, String)>> {
    let program = program()?;
    let document = |args: &[&str]| -> Result<Value> { Ok(serde_json::from_str(&prints(&program, args)?)?) };
    let pages = [
        ("policy-fields", policy(&document(&["schema"])?)),
        ("http-endpoints", http(&document(&["schema", "--openapi"])?)),
        ("cli", cli(&program)?),
        ("grpc-api", grpc(&fs::read_to_string(root().join(PROTO))?)),
    ];
    let place = |name| root().join("docs/reference").join(name).with_extension("md");
    Ok(pages.map(|(name, text)| (place(name), text)).into())
}

const PROTO: &str = "crates/throttlekit-proto/proto/throttlekit/v1/throttlekit.proto";

/// Builds the command `throttlekit`, with the features that lints and tests have, and returns its path.
fn program() -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--workspace", "--features", "full", "--bin", "throttlekit"]);
    succeed(build.current_dir(root()))?;
    Ok(env::current_exe().context("this program has no path")?.with_file_name("throttlekit"))
}

/// Returns what it prints. Help is wrapped to the width of the terminal.
fn prints(program: &Path, args: &[&str]) -> Result<String> {
    printed(Command::new(program).args(args).env("COLUMNS", "100"))
}

/// Every command with its help.
fn cli(program: &Path) -> Result<String> {
    let mut page = page("Command line", "Generated from `throttlekit --help`.");
    let help = prints(program, &["--help"])?;
    for name in commands(&help) {
        let help = prints(program, &[name, "--help"])?;
        write!(page, "\n## throttlekit {name}\n\n```text\n{}\n```\n", help.trim_end())?;
        for action in commands(&help) {
            let help = prints(program, &[name, action, "--help"])?;
            write!(page, "\n### throttlekit {name} {action}\n\n```text\n{}\n```\n", help.trim_end())?;
        }
    }
    Ok(page)
}

/// Returns the commands that a help lists.
fn commands(help: &str) -> impl Iterator<Item = &str> {
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A description may continue on further lines, which are indented more.
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
}

/// Every object of the policy file with its fields.
fn policy(schema: &Value) -> String {
    let mut page = page(
        "Policy file: fields",
        "Generated from the JSON Schema, which `throttlekit schema` prints. [Policy file](policy-file.md) has examples.",
    );
    object(&mut page, "The file", schema);
    definitions(&mut page, &schema["$defs"]);
    page
}

/// Every route with its parameters, and every document with its fields.
fn http(document: &Value) -> String {
    let mut page = page(
        "HTTP API: endpoints",
        "Generated from the OpenAPI document, which a server serves on `/openapi.json` and \
         `throttlekit schema --openapi` prints. [HTTP API](http-api.md) has examples.",
    );
    for (path, methods) in entries(&document["paths"]) {
        for (method, route) in entries(methods) {
            let summary = route["summary"].as_str().unwrap_or_default();
            _ = write!(page, "\n## {} {path}\n\n{summary}.\n", method.to_uppercase());
            if let Some(taken) = reference(&route["requestBody"]) {
                _ = write!(page, "\nRequest: {taken}.\n");
            }
            let parameters = route["parameters"].as_array().filter(|some| !some.is_empty());
            if let Some(parameters) = parameters {
                page.push_str("\n| parameter | in | description |\n|---|---|---|\n");
                for one in parameters {
                    let part = |name: &str| one[name].as_str().unwrap_or_default();
                    _ = writeln!(
                        page,
                        "| `{}` | {} | {} |",
                        part("name"),
                        part("in"),
                        cell(part("description"))
                    );
                }
            }
            page.push_str("\n| status | meaning | body |\n|---|---|---|\n");
            for (status, response) in entries(&route["responses"]) {
                let meaning = response["description"].as_str().unwrap_or_default();
                _ = writeln!(
                    page,
                    "| {status} | {} | {} |",
                    cell(meaning),
                    reference(response).unwrap_or_default()
                );
            }
        }
    }
    definitions(&mut page, &document["components"]["schemas"]);
    page
}

/// Every service, and every message with its fields, from the comments of the `.proto` file.
fn grpc(proto: &str) -> String {
    let mut page = page(
        "gRPC API",
        "Generated from `throttlekit/v1/throttlekit.proto`. A server also answers gRPC reflection, \
         `grpc.health.v1.Health` and Envoy's `RateLimitService`.",
    );
    let (mut comment, mut inside) = (String::new(), false);
    for line in proto.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["//", ref text @ ..] => {
                comment.push_str(&text.join(" "));
                comment.push(' ');
                continue;
            }
            [kind @ ("service" | "message" | "enum"), name, ..] if !inside => {
                let columns = if kind == "service" { "RPC | request | response" } else { "field | type" };
                let lines = columns.split('|').map(|_| "|---").collect::<String>();
                let title = if kind == "service" { format!("Service {name}") } else { name.to_owned() };
                _ = write!(
                    page,
                    "\n## {title}\n\n{}\n\n| {columns} | description |\n{lines}|---|\n",
                    comment.trim()
                );
                inside = !line.ends_with("{}");
            }
            ["rpc", ..] => {
                let shape = line.trim_start_matches("rpc ").trim_end_matches([';', '{', '}', ' ']);
                let parts: Vec<_> = shape.split(['(', ')']).map(str::trim).collect();
                if let [name, taken, _, given, ..] = parts[..] {
                    _ = writeln!(page, "| `{name}` | `{taken}` | `{given}` | {} |", cell(&comment));
                }
            }
            ["}", ..] => inside = false,
            [.., name, "=", _] | [.., name, "=", _, _] if inside => {
                let kind = line.split(&format!(" {name} =")).next().unwrap_or_default();
                let kind = if kind == line { "value" } else { kind };
                _ = writeln!(page, "| `{name}` | `{kind}` | {} |", cell(&comment));
            }
            _ => {}
        }
        comment.clear();
    }
    page
}

fn page(title: &str, origin: &str) -> String {
    format!("<!-- Written by `cargo xtask reference`. -->\n\n# {title}\n\n{origin}\n")
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    value.as_object().unwrap_or(&NONE).iter()
}

fn definitions(page: &mut String, definitions: &Value) {
    entries(definitions).for_each(|(name, schema)| object(page, name, schema));
}

/// A section with the fields of an object, or with the values of a choice.
fn object(page: &mut String, name: &str, schema: &Value) {
    let about = schema["description"].as_str().unwrap_or_default();
    _ = write!(page, "\n## {name}\n\n{}\n", about.replace('\n', " "));
    let required =
        |field: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == field));
    if schema["properties"].is_object() {
        page.push_str("\n| field | type | description |\n|---|---|---|\n");
        for (field, value) in entries(&schema["properties"]) {
            let needed = if required(field) { " **Required.**" } else { "" };
            let about = value["description"].as_str().unwrap_or_default();
            _ = writeln!(page, "| `{field}` | {} | {}{needed} |", kind(value), cell(about));
        }
    }
    let choices = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(choices) = choices {
        page.push_str("\n| value | description |\n|---|---|\n");
        for one in choices {
            let value = one["const"].as_str().map_or_else(|| kind(one), |value| format!("`{value}`"));
            _ = writeln!(page, "| {value} | {} |", cell(one["description"].as_str().unwrap_or_default()));
        }
    }
}

/// The type of a value, with a link to its section.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let kinds: Vec<_> = choices.iter().map(kind).filter(|kind| kind != "null").collect();
        return kinds.join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    let named = |value: &Value| value.as_str().map(str::to_owned);
    let name = match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(named).find(|name| name != "null"),
        name => named(name),
    };
    match name.as_deref() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        name => name.unwrap_or("any").to_owned(),
    }
}

/// A link to the document that a request or a response contains.
fn reference(holder: &Value) -> Option<String> {
    let (_, content) = entries(&holder["content"]).next()?;
    Some(kind(&content["schema"]))
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.trim().replace('\n', " ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_have_their_type_and_whether_they_are_required() {
        let mut page = String::new();
        let schema = json!({
            "description": "A rate.", "required": ["limit"],
            "properties": {
                "limit": { "type": "integer", "description": "Units." },
                "per": { "anyOf": [{ "$ref": "#/$defs/Span" }, { "type": "null" }], "description": "Window | span." },
            },
        });
        object(&mut page, "Rate", &schema);
        assert!(page.contains("| `limit` | integer | Units. **Required.** |\n"), "{page}");
        assert!(page.contains("| `per` | [Span](#span) | Window \\| span. |\n"), "{page}");
    }

    #[test]
    fn services_and_messages_have_their_comments() {
        let proto = "// Decides.\nservice S {\n  // Checks one.\n  rpc Check(A) returns (stream B);\n}\n\
                     // A request.\nmessage A {\n  // The key.\n  repeated string keys = 1;\n}\n";
        let page = grpc(proto);
        assert!(page.contains("## Service S\n\nDecides.\n"), "{page}");
        assert!(page.contains("| `Check` | `A` | `stream B` | Checks one. |\n"), "{page}");
        assert!(page.contains("| `keys` | `repeated string` | The key. |\n"), "{page}");
    }
}
