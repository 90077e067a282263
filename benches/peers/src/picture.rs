//! Processor time by decision as a bar chart: `--picture FILE`.

use std::fmt::Write;

use crate::report::round;
use crate::servers::OURS;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 250.0;
const TOP: f64 = 30.0;
const BAR: f64 = 16.0;
/// Space before the bars of a row, which its title shares with the first of them.
const GAP: f64 = 10.0;
/// Space right of the longest bar, for its number.
const MARGIN: f64 = 90.0;
const OUR_COLOR: &str = "#2980b9";
const PEER_COLOR: &str = "#bdc3c7";

/// Rows of bars, from top to bottom.
#[derive(Default)]
pub struct Picture {
    rows: Vec<(String, Vec<Bar>)>,
}

/// The name of a server, and the microseconds of processor time that a decision takes it.
pub type Bar = (&'static str, f64);

impl Picture {
    /// Adds a row below the others.
    pub fn add(&mut self, title: &str, bars: Vec<Bar>) {
        self.rows.push((title.to_owned(), bars));
    }

    /// Returns the picture as the content of a file.
    pub fn svg(&self) -> String {
        let bars = || self.rows.iter().flat_map(|(_, bars)| bars);
        let longest = bars().map(|(_, micros)| *micros).fold(1.0, f64::max);
        let height = TOP + BAR * bars().count() as f64 + GAP * self.rows.len() as f64 + GAP;
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' font-family='sans-serif' \
             font-size='12'>\n<rect width='{WIDTH}' height='{height}' fill='white'/>\n\
             <text x='{LEFT}' y='20' font-weight='bold'>µs of the server's processor time for a decision</text>\n"
        );
        let mut y = TOP;
        for (title, bars) in &self.rows {
            y += GAP;
            let baseline = y + BAR - 4.0;
            let _ = writeln!(svg, "<text x='{}' y='{baseline}' text-anchor='end'>{title}</text>", LEFT - 8.0);
            for (name, micros) in bars {
                draw_bar(&mut svg, y, (name, *micros), longest);
                y += BAR;
            }
        }
        svg + "</svg>\n"
    }
}

fn draw_bar(svg: &mut String, y: f64, (name, micros): (&str, f64), longest: f64) {
    let length = (micros / longest * (WIDTH - LEFT - MARGIN - 60.0)).round();
    let color = if name.starts_with(OURS) { OUR_COLOR } else { PEER_COLOR };
    let (height, end, baseline) = (BAR - 2.0, LEFT + length + 6.0, y + BAR - 4.0);
    let micros = round(micros);
    let _ = writeln!(
        svg,
        "<rect x='{LEFT}' y='{y}' width='{length}' height='{height}' fill='{color}'/>\
         <text x='{end}' y='{baseline}'>{micros:.1} {name}</text>"
    );
}
