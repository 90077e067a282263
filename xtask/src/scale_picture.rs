//! The cost curve as a picture: two panels over the number of nodes, both axes of calls logarithmic.

use std::fmt::Write;

/// One line of the picture: its name, its colour, and over nodes what was used and what it cost.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: &'a str,
    pub(crate) points: Vec<Point>,
}

/// One fleet.
pub(crate) struct Point {
    pub(crate) nodes: f64,
    pub(crate) utilisation: f64,
    pub(crate) calls: f64,
}

const PANEL: (f64, f64) = (330.0, 220.0);
const LEFT: [f64; 2] = [60.0, 480.0];
const TOP: f64 = 50.0;
const NODES: [f64; 4] = [10.0, 100.0, 1_000.0, 10_000.0];

/// The picture.
pub(crate) fn draw(series: &[Series<'_>]) -> String {
    let mut svg = String::from(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 840 350' font-family='sans-serif' font-size='12'>\n\
         <rect width='840' height='350' fill='white'/>\n",
    );
    let shares = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| (share, format!("{:.0} %", share * 100.0)));
    let costs = [0.0001, 0.001, 0.01, 0.1, 1.0].map(|calls| (calls, format!("1 / {:.0}", 1.0 / calls)));
    panel(&mut svg, LEFT[0], "what callers got of the limit", &shares, |p| p.utilisation, |v| v, series);
    panel(
        &mut svg,
        LEFT[1],
        "calls to the store per decision",
        &costs,
        |p| p.calls,
        |v| (v.log10() + 4.0) / 4.0,
        series,
    );
    for (nth, line) in series.iter().enumerate() {
        let x = 60.0 + 195.0 * nth as f64;
        let _ = writeln!(
            svg,
            "<rect x='{x}' y='325' width='14' height='4' fill='{}'/><text x='{}' y='331'>{}</text>",
            line.colour,
            x + 20.0,
            line.name
        );
    }
    svg + "</svg>\n"
}

fn panel(
    svg: &mut String,
    left: f64,
    title: &str,
    marks: &[(f64, String)],
    value: impl Fn(&Point) -> f64,
    scale: impl Fn(f64) -> f64,
    series: &[Series<'_>],
) {
    let x = |nodes: f64| left + PANEL.0 * (nodes.log10() - 0.8) / 3.2;
    let y = |value: f64| TOP + PANEL.1 * (1.0 - scale(value).clamp(0.0, 1.0));
    let (right, bottom) = (left + PANEL.0, TOP + PANEL.1);
    let _ = writeln!(svg, "<text x='{left}' y='30' font-size='14' font-weight='bold'>{title}</text>");
    for (mark, name) in marks {
        let y = y(*mark);
        let _ = writeln!(svg, "<path d='M{left} {y}H{right}' stroke='#ddd'/>");
        let _ = writeln!(svg, "<text x='{}' y='{}' text-anchor='end'>{name}</text>", left - 6.0, y + 4.0);
    }
    for nodes in NODES {
        let _ =
            writeln!(svg, "<text x='{}' y='{}' text-anchor='middle'>{nodes}</text>", x(nodes), bottom + 18.0);
    }
    let _ = writeln!(svg, "<text x='{right}' y='{}' text-anchor='end'>nodes</text>", bottom + 34.0);
    for line in series {
        let points = line.points.iter().map(|p| format!("{:.1},{:.1}", x(p.nodes), y(value(p))));
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            svg,
            "<polyline points='{points}' fill='none' stroke='{}' stroke-width='2.5'/>",
            line.colour
        );
    }
}
