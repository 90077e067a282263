//! Access lists: errors are found before they are applied, with their location.

use super::{load, refused, warned};
use crate::access::judge_secrets;
use crate::policy::Place;

/// Returns a file with two policies, and these lines below `access`.
fn access(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    let rate = "{rate: {limit: 5, per: 1m}}";
    format!("version: 1\npolicies:\n  chat: {rate}\n  api-v1: {rate}\naccess:\n{lines}")
}

const DIGEST: &str = "a1f42b0f85433b571e2185a53fec6792426c5e5c79e8f372100fa8d0c168b601";

#[test]
fn lists_that_cannot_work_are_refused_with_the_place_and_a_remedy() {
    let both =
        |way: &str| format!("principals:\n  a: {{{way}, allow: [{{endpoints: [check]}}]}}\n  b: {{{way}}}");
    let table = [
        (
            "principals:\n  a:\n    allow: [{endpoints: [check]}]".to_owned(),
            "7:5 access.principals.a: no credential: set token_sha256, token_file, token_env, tokens or certificate",
        ),
        (
            "principals:\n  a: {token_sha256: abc, allow: [{endpoints: [check]}]}".into(),
            "7:23 access.principals.a.token_sha256: invalid SHA-256 digest: expected 64 hexadecimal digits",
        ),
        (
            "principals:\n  a: {certificate: 'cn:x', allow: [{endpoints: [check]}]}".into(),
            "7:22 access.principals.a.certificate: certificate `cn:x` is neither `dns:host` nor a URI such as `spiffe://mesh/name`",
        ),
        (
            "principals:\n  a: {token_env: A}\n  a: {token_env: B}".into(),
            "8:5 duplicate key `a`: keep one of them",
        ),
        (
            "anonymous:\n  - {endpoints: [chekc]}".into(),
            "7:20 access.anonymous[0].endpoints[0]: unknown value `chekc`; did you mean `check`?",
        ),
        (
            "anonymous:\n  - {endpoints: []}".into(),
            "7:7 access.anonymous[0]: the grant allows nothing: name at least one endpoint in `endpoints`",
        ),
        (
            "anonymous:\n  - {endpoints: [check], policies: ['a*b']}".into(),
            "7:7 access.anonymous[0]: `a*b`: a `*` is allowed at the end of a policy name only",
        ),
        (
            both("certificate: 'dns:Ops.example'").replacen("Ops", "ops", 1),
            "8:22 access.principals.b.certificate: `a` has the same credential: a caller is exactly one principal",
        ),
        (
            both("token_file: /run/token"),
            "8:21 access.principals.b.token_file: `a` has the same credential: a caller is exactly one principal",
        ),
        (
            both("certificate: 'spiffe://mesh/ns/*'"),
            "8:22 access.principals.b.certificate: `a` has the same credential: a caller is exactly one principal",
        ),
        (
            "principals:\n  a: {certificate: 'spiffe://mesh*', allow: [{endpoints: [check]}]}".into(),
            "7:22 access.principals.a.certificate: certificate `spiffe://mesh*`: a `*` is allowed at the end only",
        ),
        (
            "principals:\n  a: {tokens: [{}], allow: [{endpoints: [check]}]}".into(),
            "7:18 access.principals.a.tokens[0]: the token has no source: set sha256, file or env",
        ),
        (
            "principals:\n  a: {tokens: [{env: A, expires: 2026-13-01T00:00:00Z}], allow: [{endpoints: [check]}]}".into(),
            "7:24 access.principals.a.tokens[0].env: invalid date-time `2026-13-01T00:00:00Z`",
        ),
        (
            "principals:\n  a: {tokens: [{env: A}, {env: B}, {env: C}], allow: [{endpoints: [check]}]}".into(),
            "7:9 access.principals.a.tokens: 3 tokens: at most 2 are allowed, the old and the new one",
        ),
        (
            format!("{}\n  b: {{tokens: [{{sha256: {}}}]}}", both(&format!("token_sha256: {DIGEST}")).lines().take(2).collect::<Vec<_>>().join("\n"), DIGEST.to_uppercase()),
            "8:27 access.principals.b.tokens[0].sha256: `a` has the same credential: a caller is exactly one principal",
        ),
        (
            both(&format!("token_sha256: {DIGEST}")),
            "8:23 access.principals.b.token_sha256: `a` has the same credential: a caller is exactly one principal",
        ),
    ];
    for (lines, says) in table {
        let said = refused(&access(&lines));
        assert!(said.starts_with(says), "{lines}\n{said}");
    }
}

#[test]
fn what_allows_less_than_it_seems_to_is_warned_of() {
    let table = [
        (
            "anonymous: [{endpoints: [check], policies: [caht]}]",
            "warning: access.anonymous[0].policies[0]: unknown policy `caht`; did you mean `chat`?",
        ),
        (
            "anonymous: [{endpoints: [check], policies: [chat, 'api-*', 'web-*']}]",
            "warning: access.anonymous[0].policies[2]: no policy starts with `web-`",
        ),
        (
            "principals: {a: {certificate: 'dns:x'}}",
            "warning: access.principals.a: the principal has no rights: add grants to `allow`",
        ),
        (
            "{}",
            "warning: access: `access` is empty, so every request is rejected: list principals, or remove `access`",
        ),
        ("anonymous: [{endpoints: [check], policies: [chat, '*']}]", ""),
    ];
    for (lines, says) in table {
        assert_eq!(warned(&access(lines)), says, "{lines}");
    }
    let (_, warnings) =
        load(&access("anonymous:\n  - endpoints: [check]\n    policies: [chat, nobody]")).unwrap();
    assert_eq!(warnings[0].place, Some(Place { line: 8, column: 24 }));
}

/// A file is checked where it is written; its secrets are where it is run.
#[test]
fn secrets_are_read_only_where_that_is_asked_for() {
    let text = access(
        "principals:\n  a:\n    token_file: /no/such/file\n    allow: [{endpoints: [check]}]\n  b: {token_env: THROTTLEKIT_NO_SUCH, allow: [{endpoints: [check]}]}",
    );
    assert_eq!(warned(&text), "");
    let errors = judge_secrets(&text).unwrap_err();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!(
        (errors[0].path.as_str(), errors[0].place.unwrap().line),
        ("access.principals.a.token_file", 8)
    );
    assert!(errors[0].message.contains("/no/such/file"), "{}", errors[0]);
    assert!(errors[1].to_string().contains("`THROTTLEKIT_NO_SUCH`: environment variable not set"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "a token of more than sixteen bytes\n").unwrap();
    let with = |path: &str| {
        access(&format!("principals:\n  a: {{token_file: '{path}', allow: [{{endpoints: [check]}}]}}"))
    };
    judge_secrets(&with(path.to_str().unwrap())).unwrap();
    let over =
        format!("principals: {{a: {{tokens: [{{sha256: {DIGEST}, expires: 2020-01-01T00:00:00Z}}]}}}}");
    assert!(warned(&access(&over)).contains("has no rights"), "a date is judged where the file is run");
    let errors = judge_secrets(&access(&over)).unwrap_err();
    assert_eq!(errors[0].path, "access.principals.a.tokens[0].sha256");
    assert!(errors[0].message.contains("has expired"), "{}", errors[0]);
}
