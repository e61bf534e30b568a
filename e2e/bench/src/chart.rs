//! A bar chart: one bar per subject, as long as its median, with its spread.

use std::fmt::Write as _;

use super::samples::Samples;

const ROW: usize = 34;
const LEFT: f64 = 230.0;
const WIDTH: f64 = 520.0;

/// Draws one metric of all subjects.
pub(crate) fn draw(title: &str, unit: &str, bars: &[(&str, &Samples)]) -> String {
    let most = bars
        .iter()
        .filter_map(|(_, samples)| samples.most())
        .fold(f64::MIN_POSITIVE, f64::max);
    let x = |figure: f64| LEFT + WIDTH * figure / most;
    let height = 50 + ROW * bars.len();
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{height}" font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="10" y="24" font-size="15" font-weight="bold">{} ({})</text>
"#,
        escaped(title),
        escaped(unit),
    );
    for (at, (name, samples)) in bars.iter().enumerate() {
        let (Some(least), Some(median), Some(most)) =
            (samples.least(), samples.median(), samples.most())
        else {
            continue;
        };
        let top = 42 + ROW * at;
        let middle = top + 11;
        let fill = if name.starts_with("Belayer") {
            "#2f6f4f"
        } else {
            "#9aa5b1"
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            r#"<text x="{}" y="{}" text-anchor="end">{}</text>
<rect x="{LEFT}" y="{top}" width="{:.1}" height="22" fill="{fill}"/>
<line x1="{:.1}" y1="{middle}" x2="{:.1}" y2="{middle}" stroke="black"/>
<text x="{:.1}" y="{}">{}</text>"#,
            LEFT - 8.0,
            top + 16,
            escaped(name),
            x(median) - LEFT,
            x(least),
            x(most),
            x(most) + 6.0,
            top + 16,
            figure(median),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A number with three significant digits.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_medians() {
        let (short, long): (Samples, Samples) =
            ([5.0].into_iter().collect(), [10.0].into_iter().collect());
        let svg = draw("wall", "s", &[("Belayer", &short), ("a < b", &long)]);
        assert!(svg.contains(r#"width="260.0""#), "{svg}");
        assert!(svg.contains(r#"width="520.0""#), "{svg}");
        assert!(svg.contains("a &lt; b"), "{svg}");
    }

    #[test]
    fn figures_have_three_digits() {
        let all = [0.0, 0.1234, 1.234, 12.34, 123.4, 12345.6].map(figure);
        assert_eq!(all, ["0", "0.123", "1.23", "12.3", "123", "12346"]);
    }
}
