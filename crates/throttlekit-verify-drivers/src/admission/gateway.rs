//! The gateway under load, compared with the two ways in which most gateways meter: a run of
//! `llm-gateway-load`, which checks it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Part, Setup};
use crate::picture::{Axis, Line, Panel, Picture, Scale};
use crate::root;

/// The options of the run beside its defaults, which are the full size: 64 streams, 8 tenants, 3 gateways.
const SMALL: [&str; 4] = ["--windows", "2", "--window-ms", "5000"];

const METERS: [(&str, &str, &str); 3] = [
    ("stream", "debited as it streams", "#27ae60"),
    ("reserve", "max_tokens reserved", "#c0392b"),
    ("count", "counted afterwards", "#e67e22"),
];

pub(super) fn run(setup: Setup) -> Result<Part> {
    let figures = root().join("target/gateway.jsonl");
    // The figures of another run do not count.
    let _ = fs::remove_file(&figures);
    let mut command = Command::new("cargo");
    // In the build of tests: it waits for the model, not for the processor.
    command.args(["run", "--quiet", "--package", "llm-gateway-load", "--", "load"]);
    command.arg("--json").arg(&figures);
    if setup.small {
        command.args(SMALL);
    }
    command.envs(setup.services.up(&["redis"])?);
    let held = command.status().context("cannot start the gateway")?.success();
    let figures = read(&figures)?;
    if held && !setup.small {
        let place = root().join("docs/images/gateway.svg");
        fs::write(&place, picture_of(&figures)?.svg()).context("cannot write docs/images/gateway.svg")?;
        println!("docs/images/gateway.svg");
    }
    let broken = if held { Vec::new() } else { vec!["gateway: a bound of the load was broken".to_owned()] };
    Ok(Part { figure: figures.iter().map(summary).collect(), broken, ..Part::default() })
}

fn read(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("no figures in {}", file.display()))?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(lines.len() == METERS.len(), "figures of {} meters, not of {}", lines.len(), METERS.len());
    Ok(lines)
}

/// Returns everything except the individual windows.
fn summary(figures: &Value) -> Value {
    let mut summary = figures.clone();
    if let Some(all) = summary.as_object_mut() {
        let windows = all.remove("windows").and_then(|windows| windows.as_array().map(Vec::len));
        all.insert("windows".into(), json!(windows));
    }
    summary
}

/// Draws the tokens that each meter passed on in each window, and those beyond the budget.
fn picture_of(figures: &[Value]) -> Result<Picture> {
    let lines = |value: fn(&Value, f64) -> f64| -> Result<Vec<Line>> {
        METERS
            .iter()
            .map(|&(meter, name, colour)| {
                let all = figures.iter().find(|all| all["meter"] == meter).context("a meter is missing")?;
                let capacity = all["capacity"].as_f64().context("no capacity")?;
                let windows = all["windows"].as_array().context("no windows")?;
                let point = |(at, window): (usize, &Value)| (at as f64 + 1.0, value(window, capacity));
                Ok(Line { name, colour, points: windows.iter().enumerate().map(point).collect() })
            })
            .collect()
    };
    let delivered = |window: &Value| window["delivered"].as_f64().unwrap_or(0.0);
    let used = lines(|window, capacity| window["delivered"].as_f64().unwrap_or(0.0) / capacity)?;
    let beyond = lines(|window, capacity| (window["delivered"].as_f64().unwrap_or(0.0) - capacity).max(0.0))?;
    let count = figures[0]["windows"].as_array().map_or(1, Vec::len);
    let windows = || Axis {
        name: "window",
        scale: Scale::Even,
        marks: (1..=count).map(|at| (at as f64, at.to_string())).collect(),
    };
    let capacity = figures[0]["capacity"].as_f64().context("no capacity")?;
    let all = figures.iter().filter_map(|all| all["windows"].as_array()).flatten();
    let most = all.map(|window| delivered(window) - capacity).fold(1_000.0, f64::max);
    let top = (most / 10_000.0).ceil() * 10_000.0;
    let marks = |values: &[f64]| values.iter().map(|&value| (value, format!("{value}"))).collect();
    Ok(Picture {
        panels: vec![
            Panel {
                title: "tokens passed on, as a part of the budget",
                x: windows(),
                y: Axis { name: "", scale: Scale::Even, marks: marks(&[0.0, 0.5, 1.0, 1.5, 2.0]) },
                lines: used,
            },
            Panel {
                title: "tokens passed on beyond the budget",
                x: windows(),
                y: Axis { name: "", scale: Scale::Even, marks: marks(&[0.0, top / 2.0, top]) },
                lines: beyond,
            },
        ],
    })
}
