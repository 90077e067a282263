//! A screen as an SVG image, for documentation.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Width of one character.
const WIDE: f64 = 8.4;
const HIGH: f64 = 17.0;
const PAPER: &str = "#101418";
const INK: &str = "#d5dbe1";

/// Renders the screen as SVG: runs of one style are one piece of text, stretched to its cells.
pub(super) fn svg(screen: &Buffer) -> String {
    let (columns, rows) = (screen.area.width, screen.area.height);
    let (width, height) = (f64::from(columns) * WIDE + 16.0, f64::from(rows) * HIGH + 16.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\" fill=\"{PAPER}\"/>\n"
    );
    for row in 0..rows {
        let mut column = 0;
        while column < columns {
            let style = colours(&screen[(column, row)]);
            let end = (column..columns).find(|at| colours(&screen[(*at, row)]) != style).unwrap_or(columns);
            let text: String = (column..end).map(|at| screen[(at, row)].symbol()).collect();
            piece(&mut out, column, row, end - column, &text, style);
            column = end;
        }
    }
    out + "</svg>\n"
}

type Look = (&'static str, &'static str, bool);

fn piece(out: &mut String, column: u16, row: u16, cells: u16, text: &str, (ink, paper, bold): Look) {
    let (x, y) = (f64::from(column) * WIDE + 8.0, f64::from(row) * HIGH + 8.0);
    let width = f64::from(cells) * WIDE;
    // Writing to a string cannot fail.
    if paper != PAPER {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HIGH}\" fill=\"{paper}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let baseline = y + HIGH - 4.5;
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{baseline:.1}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{ink}\"{weight}>{text}</text>"
    );
}

fn colours(cell: &Cell) -> Look {
    let (ink, paper) = (colour(cell.fg, INK), colour(cell.bg, PAPER));
    let (ink, paper) = if cell.modifier.contains(Modifier::REVERSED) { (paper, ink) } else { (ink, paper) };
    (ink, paper, cell.modifier.contains(Modifier::BOLD))
}

fn colour(colour: Color, otherwise: &'static str) -> &'static str {
    match colour {
        Color::Green => "#5fd38d",
        Color::Red => "#ff6b6b",
        Color::Yellow => "#f2c14e",
        Color::Cyan => "#4cc9f0",
        Color::DarkGray => "#7a8691",
        _ => otherwise,
    }
}
