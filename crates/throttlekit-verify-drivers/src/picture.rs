//! Line charts as SVG: panels side by side over one legend.

use std::fmt::Write;

/// A picture of panels that share their lines' names and colors.
pub(crate) struct Picture {
    /// From left to right.
    pub(crate) panels: Vec<Panel>,
}

/// One chart.
pub(crate) struct Panel {
    /// The title above it.
    pub(crate) title: &'static str,
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// Drawn in order, the later above the earlier.
    pub(crate) lines: Vec<Line>,
}

/// One direction of a chart. The first and the last mark are its ends.
pub(crate) struct Axis {
    /// The label at its end.
    pub(crate) name: &'static str,
    /// The scale of values.
    pub(crate) scale: Scale,
    /// Values, and their labels.
    pub(crate) marks: Vec<(f64, String)>,
}

/// The scale of an axis.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// Linear.
    Even,
    /// Logarithmic; values must be above zero.
    Powers,
}

/// One line of a chart. Lines of the same name appear in the legend once.
pub(crate) struct Line {
    /// The name in the legend.
    pub(crate) name: &'static str,
    /// The color in SVG syntax.
    pub(crate) colour: &'static str,
    /// Horizontal and vertical coordinates.
    pub(crate) points: Vec<(f64, f64)>,
}

const PANEL_WIDTH: f64 = 330.0;
const PANEL_HEIGHT: f64 = 220.0;
/// The distance between the left edges of two panels.
const STEP: f64 = 430.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const HEIGHT: f64 = 350.0;

impl Picture {
    /// Returns the picture as the content of a file.
    pub(crate) fn svg(&self) -> String {
        let width = STEP * self.panels.len() as f64;
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {HEIGHT}' font-family='sans-serif' \
             font-size='12'>\n<rect width='{width}' height='{HEIGHT}' fill='white'/>\n"
        );
        for (nth, panel) in self.panels.iter().enumerate() {
            panel.draw(&mut svg, LEFT + STEP * nth as f64);
        }
        self.draw_legend(&mut svg, width - 2.0 * LEFT);
        svg + "</svg>\n"
    }

    fn draw_legend(&self, svg: &mut String, width: f64) {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&(line.name, line.colour)) {
                names.push((line.name, line.colour));
            }
        }
        let step = width / names.len().max(1) as f64;
        for (nth, (name, colour)) in names.iter().enumerate() {
            let x = LEFT + step * nth as f64;
            let _ = writeln!(
                svg,
                "<rect x='{x:.1}' y='325' width='14' height='4' fill='{colour}'/><text x='{:.1}' y='331'>{name}</text>",
                x + 20.0
            );
        }
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, left: f64) {
        let x = |value: f64| left + PANEL_WIDTH * self.x.place(value);
        let y = |value: f64| TOP + PANEL_HEIGHT * (1.0 - self.y.place(value));
        let (right, bottom) = (left + PANEL_WIDTH, TOP + PANEL_HEIGHT);
        let _ =
            writeln!(svg, "<text x='{left}' y='30' font-size='14' font-weight='bold'>{}</text>", self.title);
        for (mark, name) in &self.y.marks {
            let (at, text_at) = (y(*mark), y(*mark) + 4.0);
            let _ = writeln!(svg, "<path d='M{left} {at:.1}H{right}' stroke='#ddd'/>");
            let _ =
                writeln!(svg, "<text x='{:.1}' y='{text_at:.1}' text-anchor='end'>{name}</text>", left - 6.0);
        }
        for (mark, name) in &self.x.marks {
            let _ = writeln!(
                svg,
                "<text x='{:.1}' y='{}' text-anchor='middle'>{name}</text>",
                x(*mark),
                bottom + 18.0
            );
        }
        let _ =
            writeln!(svg, "<text x='{right}' y='{}' text-anchor='end'>{}</text>", bottom + 34.0, self.x.name);
        for line in &self.lines {
            let points = line.points.iter().map(|&(across, up)| format!("{:.1},{:.1}", x(across), y(up)));
            let points = points.collect::<Vec<_>>().join(" ");
            let _ = writeln!(
                svg,
                "<polyline points='{points}' fill='none' stroke='{}' stroke-width='2.5'/>",
                line.colour
            );
        }
    }
}

impl Axis {
    /// Creates an axis with these marks, each labeled with its value.
    pub(crate) fn plain(name: &'static str, scale: Scale, marks: &[f64]) -> Self {
        Self { name, scale, marks: marks.iter().map(|&mark| (mark, mark.to_string())).collect() }
    }

    /// Creates a linear axis of parts of a whole, labeled in percent.
    pub(crate) fn percent(marks: &[f64]) -> Self {
        let named = |&mark: &f64| (mark, format!("{:.0} %", mark * 100.0));
        Self { name: "", scale: Scale::Even, marks: marks.iter().map(named).collect() }
    }

    /// Returns the position of a value, from 0 at the first mark to 1 at the last.
    fn place(&self, value: f64) -> f64 {
        let along = |value: f64| match self.scale {
            Scale::Even => value,
            Scale::Powers => value.log10(),
        };
        let end = |mark: Option<&(f64, String)>| along(mark.map_or(0.0, |(value, _)| *value));
        let (first, last) = (end(self.marks.first()), end(self.marks.last()));
        ((along(value) - first) / (last - first)).clamp(0.0, 1.0)
    }
}
