//! Figures of other pages against the tables of the page about performance, which the benchmarks write.

use std::fs;

use super::documents::BOOK;
use super::root;

/// Where the figures of each line of the table of sizing.md come from: the benchmark, the row and the columns.
#[rustfmt::skip]
const SOURCES: &[(&str, &str, &[&str])] = &[
    ("scale", "Belayer, 2000 pods", &["resident (MB)"]),
    ("scale", "Belayer, 10000 pods", &["resident (MB)"]),
    ("scale", "Belayer, 50000 pods", &["resident (MB)"]),
    ("informer", "Belayer, all controllers", &["resident (MB)", "peak resident (MB)"]),
    ("scale", "Belayer, 50000 pods", &["CPU per event (us)"]),
    ("informer", "Belayer, all controllers", &["wall (s)"]),
    ("drain", "Belayer", &["wall (s)", "CPU (s)"]),
];

/// A figure may be rounded by this part of it.
const ROUNDED: f64 = 0.03;

fn page(name: &str) -> String {
    fs::read_to_string(root().join(BOOK).join(name)).unwrap()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn numbers(text: &str) -> Vec<f64> {
    text.replace(',', "")
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// The median in a row of the first table of a benchmark.
fn median(section: &str, row: &str, column: &str) -> f64 {
    let mut lines = section.lines().filter(|line| line.starts_with('|'));
    let head = cells(lines.next().unwrap());
    let at = head.iter().position(|cell| *cell == column);
    let at = at.unwrap_or_else(|| panic!("no column {column}"));
    let found = lines.map(cells).find(|cells| cells[0] == row);
    let found = found.unwrap_or_else(|| panic!("no row {row}"));
    numbers(found[at])[0]
}

/// The section of a benchmark on the page about performance.
fn bench<'a>(performance: &'a str, name: &str) -> &'a str {
    let start = format!("<!-- bench {name} -->");
    let (_, section) = performance.split_once(&start).unwrap();
    section.split_once("<!-- end").unwrap().0
}

/// The lines of the table whose last column has this title.
fn table<'a>(page: &'a str, last: &str) -> Vec<Vec<&'a str>> {
    let head = format!("| {last} |");
    page.lines()
        .skip_while(|line| !line.ends_with(&head))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect()
}

fn is_rounded(figure: f64, measured: f64) -> bool {
    (figure - measured).abs() <= ROUNDED * measured
}

#[test]
fn the_figures_about_a_takeover_are_those_of_the_benchmark() {
    let performance = page("contribute/performance.md");
    let section = bench(&performance, "failover");
    let page = page("install/high-availability.md");
    let table = table(&page, "longest wait for a release");
    for (line, row) in table
        .iter()
        .zip(["SIGTERM of the leader", "SIGKILL of the leader"])
    {
        let measured = median(section, row, "longest wait (s)");
        let figures = numbers(line.last().unwrap());
        assert_eq!(figures.len(), 1, "{line:?}");
        assert!(is_rounded(figures[0], measured), "{line:?}: {measured}");
    }
    assert!(table.len() > 2, "{table:?}");
}

#[test]
fn the_figures_about_sizing_are_those_of_the_benchmarks() {
    let performance = page("contribute/performance.md");
    let sizing = page("install/sizing.md");
    let table = table(&sizing, "measured");
    assert_eq!(table.len(), SOURCES.len());
    for (line, (name, row, columns)) in table.iter().zip(SOURCES) {
        let section = bench(&performance, name);
        for size in numbers(line[0]) {
            assert!(section.contains(&size.to_string()), "{line:?}");
        }
        let figures = numbers(line[1]);
        assert_eq!(figures.len(), columns.len(), "{line:?}");
        for (figure, column) in figures.into_iter().zip(*columns) {
            let measured = median(section, row, column);
            let is_rounded = is_rounded(figure, measured);
            assert!(is_rounded, "{line:?}: {column} of {name} is {measured}");
        }
    }
    let seconds = numbers(table.last().unwrap()[1])[0];
    let drain = format!("10,000 releases took {seconds} s");
    assert!(page("install/before.md").contains(&drain), "{drain}");
}
