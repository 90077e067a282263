//! What was seen, as a table and as a picture.

use std::fmt::Write;
use std::time::Duration;

use picture::{Axis, Line, Panel, Picture, Scale};

use crate::{Act, Moment};

/// One line for each act, of its second half: when the guard has found out.
pub fn table(acts: &[Act], moments: &[Moment]) -> String {
    let mut table = format!(
        "{:>9}{:>9}{:>14}{:>11}{:>12}{:>16}\n",
        "backend", "work ms", "limit (mean)", "in flight", "latency ms", "served of best"
    );
    let mut begins = Duration::ZERO;
    for act in acts {
        let settled = begins + act.lasts / 2..begins + act.lasts;
        let seen: Vec<_> = moments.iter().filter(|moment| settled.contains(&moment.since)).collect();
        let mean =
            |of: fn(&Moment) -> f64| seen.iter().map(|m| of(m)).sum::<f64>() / seen.len().max(1) as f64;
        let served: f64 = seen.iter().map(|moment| f64::from(moment.served)).sum();
        let best = act.at_a_time as f64 * (act.lasts / 2).as_secs_f64() / act.work.as_secs_f64();
        let latency: Vec<f64> =
            seen.iter().filter_map(|m| m.latency).map(|l| l.as_secs_f64() * 1e3).collect();
        let latency = latency.iter().sum::<f64>() / latency.len().max(1) as f64;
        let _ = writeln!(
            table,
            "{:>9}{:>9}{:>14.1}{:>11.1}{:>12.1}{:>16.2}",
            act.at_a_time,
            act.work.as_millis(),
            mean(|m| f64::from(m.limit)),
            mean(|m| f64::from(m.in_flight)),
            latency,
            served / best,
        );
        begins += act.lasts;
    }
    table
}

/// Two panels over the same time: how many at a time, and how long it took.
pub fn drawn(acts: &[Act], moments: &[Moment]) -> Picture {
    let line = |name, colour, of: &dyn Fn(&Moment) -> Option<f64>| {
        let point = |m: &Moment| Some((m.since.as_secs_f64(), of(m)?));
        Line { name, colour, points: moments.iter().filter_map(point).collect() }
    };
    let (count, wait) = (
        |acts: &[Act]| steps(acts, |act| act.at_a_time as f64),
        |acts: &[Act]| steps(acts, |act| act.work.as_secs_f64() * 1e3),
    );
    let ends = acts.iter().map(|act| act.lasts).sum::<Duration>().as_secs_f64().ceil();
    let seconds = || Axis::plain("seconds", Scale::Even, &[0.0, ends / 3.0, ends * 2.0 / 3.0, ends]);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
    let at_a_time = most(&mut moments.iter().map(|m| f64::from(m.limit.max(m.in_flight))));
    let slowest = most(&mut moments.iter().filter_map(|m| m.latency).map(|l| l.as_secs_f64() * 1e3));
    Picture {
        panels: vec![
            Panel {
                title: "Requests at a time",
                x: seconds(),
                y: marked(at_a_time, 10.0),
                lines: vec![
                    Line { name: "best", colour: "#999", points: count(acts) },
                    line("in flight", "#8ecae6", &|m| Some(f64::from(m.in_flight))),
                    line("limit", "#d62828", &|m| Some(f64::from(m.limit))),
                ],
            },
            Panel {
                title: "Latency, ms",
                x: seconds(),
                y: marked(slowest, 50.0),
                lines: vec![
                    Line { name: "best", colour: "#999", points: wait(acts) },
                    line("latency", "#2a6f97", &|m| m.latency.map(|l| l.as_secs_f64() * 1e3)),
                ],
            },
        ],
    }
}

fn steps(acts: &[Act], value: impl Fn(&Act) -> f64) -> Vec<(f64, f64)> {
    let mut begins = 0.0;
    let mut points = Vec::new();
    for act in acts {
        let ends = begins + act.lasts.as_secs_f64();
        points.extend([(begins, value(act)), (ends, value(act))]);
        begins = ends;
    }
    points
}

/// An axis from zero with a mark at each `step`, beyond what is the most.
fn marked(most: f64, step: f64) -> Axis {
    let step = step * (most / step / 6.0).ceil();
    let marks: Vec<f64> = (0..=(most / step).ceil() as u32).map(|nth| f64::from(nth) * step).collect();
    Axis::plain("", Scale::Even, &marks)
}
