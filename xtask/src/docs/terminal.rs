//! Output of a terminal as SVG: all of it, or a cast that scrolls as the lines were printed.

use std::fmt::Write as _;
use std::time::Duration;

/// A printed line with its escape sequences.
pub(super) struct Line {
    /// Since the start of the program.
    pub(super) at: Duration,
    pub(super) text: String,
}

/// Height of a row and width of a column, in pixels.
const ROW: usize = 18;
const COLUMN: f64 = 7.8;

const MARGIN: usize = 14;

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// Longer pauses are shortened.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);

/// The end of a cast stays for this time.
const STAYS: Duration = Duration::from_secs(8);

const STYLE: &str = "\
    text { fill: #e7eaf0; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre }
    .bold { font-weight: 700 } .dim { fill: #98a2b1 }
    .red { fill: #ff8a8a } .green { fill: #6fd08c } .yellow { fill: #f0b45c } .blue { fill: #7db4ff }
    .magenta { fill: #d8a1f2 } .cyan { fill: #6fd3e0 }
";

/// All lines, broken at the width of a terminal.
pub(super) fn still(title: &str, lines: &[Line]) -> String {
    let lines: Vec<Line> = lines.iter().flat_map(broken).collect();
    svg(title, &lines, lines.len(), "", "")
}

/// The rows of a line. Each begins with the colours that are on.
fn broken(line: &Line) -> Vec<Line> {
    let mut rows = vec![String::new()];
    let (mut column, mut colours) = (0, String::new());
    let mut rest = line.text.as_str();
    while let Some(first) = rest.chars().next() {
        let escape = rest
            .starts_with("\u{1b}[")
            .then(|| rest.find('m'))
            .flatten();
        let length = escape.map_or(first.len_utf8(), |end| end + 1);
        let (part, after) = rest.split_at(length);
        rest = after;
        if escape.is_some() {
            colours.push_str(part);
        } else if column == COLUMNS {
            rows.push(colours.clone());
            column = 1;
        } else {
            column += 1;
        }
        if let Some(row) = rows.last_mut() {
            row.push_str(part);
        }
    }
    let at = line.at;
    rows.into_iter().map(|text| Line { at, text }).collect()
}

/// A window of `rows` rows. Without animation it shows the end.
pub(super) fn cast(title: &str, lines: &[Line], rows: usize) -> String {
    let times = shortened(lines);
    let end = times.last().copied().unwrap_or_default() + STAYS;
    let offset = |printed: usize| {
        let pixels = |rows: usize| rows * ROW;
        match printed.checked_sub(rows) {
            Some(above) => format!("-{}px", pixels(above)),
            None => format!("{}px", pixels(rows - printed)),
        }
    };
    let mut frames = String::new();
    for (at, time) in times.iter().enumerate() {
        // Of lines that were printed at once only the last one is a frame.
        if times.get(at + 1) != Some(time) {
            let percent = time.as_secs_f64() / end.as_secs_f64() * 100.0;
            let offset = offset(at + 1);
            let _ = write!(
                frames,
                " {percent:.2}% {{ transform: translateY({offset}) }}"
            );
        }
    }
    let last = offset(lines.len());
    let style = format!(
        "    @keyframes roll {{{frames} }}\n    \
         .roll {{ transform: translateY({last}); animation: roll {:.1}s step-end infinite }}\n    \
         @media (prefers-reduced-motion: reduce) {{ .roll {{ animation: none }} }}\n",
        end.as_secs_f64()
    );
    svg(title, lines, rows, &style, " class=\"roll\"")
}

/// When each line is shown.
fn shortened(lines: &[Line]) -> Vec<Duration> {
    let (mut before, mut shown) = (Duration::ZERO, Duration::ZERO);
    let times = lines.iter().map(|line| {
        shown += line.at.saturating_sub(before).min(LONGEST_PAUSE);
        before = line.at;
        shown
    });
    times.collect()
}

fn svg(title: &str, lines: &[Line], rows: usize, style: &str, class: &str) -> String {
    let columns = lines.iter().map(|line| width(&line.text)).max();
    let columns = columns.unwrap_or_default();
    let (wide, tall) = ((columns as f64 * COLUMN).ceil() as usize, rows * ROW + 6);
    let (width, height) = (wide + 2 * MARGIN, tall + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\n  \
         <title>{}</title>\n  <style>\n{STYLE}{style}  </style>\n  \
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#14171c\"/>\n  \
         <svg x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{wide}\" height=\"{tall}\"><g{class}>\n",
        escaped(title)
    );
    for (row, line) in lines.iter().enumerate() {
        text(&mut svg, row, &line.text);
    }
    svg.push_str("  </g></svg>\n</svg>\n");
    svg
}

/// A line. Its length is given, because fonts differ.
fn text(svg: &mut String, row: usize, line: &str) {
    let columns = width(line);
    if columns == 0 {
        return;
    }
    let length = columns as f64 * COLUMN;
    let _ = write!(
        svg,
        "<text y=\"{}\" textLength=\"{length:.1}\">",
        row * ROW + 13
    );
    for (class, part) in parts(line) {
        let _ = match class.as_str() {
            "" => write!(svg, "{}", escaped(part)),
            class => write!(svg, "<tspan class=\"{class}\">{}</tspan>", escaped(part)),
        };
    }
    svg.push_str("</text>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The columns of a line.
fn width(line: &str) -> usize {
    let shown = parts(line)
        .into_iter()
        .map(|(_, part)| part.chars().count());
    shown.sum()
}

/// The parts of a line with their classes.
fn parts(line: &str) -> Vec<(String, &str)> {
    const COLOURS: [&str; 8] = [
        "dim", "red", "green", "yellow", "blue", "magenta", "cyan", "",
    ];
    let (mut bold, mut dim, mut colour) = ("", "", "");
    let mut parts = Vec::new();
    for (at, part) in line.split("\u{1b}[").enumerate() {
        let shown = match part.split_once('m') {
            Some((codes, rest)) if at > 0 => {
                for code in codes.split(';') {
                    match code.parse().unwrap_or(0) {
                        0 => (bold, dim, colour) = ("", "", ""),
                        1 => bold = "bold ",
                        2 => dim = "dim ",
                        22 => (bold, dim) = ("", ""),
                        code @ (30..=37 | 90..=97) => colour = COLOURS[code % 10],
                        39 => colour = "",
                        _ => {}
                    }
                }
                rest
            }
            _ => part,
        };
        if !shown.is_empty() {
            let class = format!("{bold}{dim}{colour}");
            parts.push((class.trim_end().to_owned(), shown));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: u64, text: &str) -> Line {
        Line {
            at: Duration::from_millis(at),
            text: text.to_owned(),
        }
    }

    #[test]
    fn escape_sequences_become_classes() {
        let text = "\u{1b}[36m\u{1b}[1m1.\u{1b}[0m\u{1b}[39m a \u{1b}[2;32m<b>\u{1b}[22m!";
        let parts = parts(text);
        let parts: Vec<_> = parts
            .iter()
            .map(|(class, part)| (&**class, *part))
            .collect();
        let wanted = [
            ("bold cyan", "1."),
            ("", " a "),
            ("dim green", "<b>"),
            ("green", "!"),
        ];
        assert_eq!(parts, wanted);
        assert_eq!(width(text), 9);
        let svg = still("a & b", &[line(0, text)]);
        assert!(
            svg.contains("<tspan class=\"dim green\">&lt;b></tspan>"),
            "{svg}"
        );
        assert!(svg.contains("<title>a &amp; b</title>"), "{svg}");
    }

    #[test]
    fn a_long_line_is_broken_and_keeps_its_colours() {
        let text = format!("\u{1b}[1m{}bc\u{1b}[0m d", "a".repeat(79));
        let rows: Vec<String> = broken(&line(0, &text))
            .into_iter()
            .map(|row| row.text)
            .collect();
        let first = format!("\u{1b}[1m{}b", "a".repeat(79));
        assert_eq!(rows, [first.as_str(), "\u{1b}[1mc\u{1b}[0m d"]);
    }

    #[test]
    fn a_cast_shortens_pauses_and_ends_with_the_last_line() {
        let lines = [
            line(0, "a"),
            line(0, "b"),
            line(60_000, "c"),
            line(61_000, "d"),
        ];
        assert_eq!(shortened(&lines).last(), Some(&Duration::from_millis(2500)));
        let svg = cast("", &lines, 3);
        assert!(
            svg.contains("{ 0.00% { transform: translateY(18px) }"),
            "{svg}"
        );
        assert!(
            svg.contains(".roll { transform: translateY(-18px);"),
            "{svg}"
        );
        assert_eq!(svg.matches("% {").count(), 3, "{svg}");
    }
}
