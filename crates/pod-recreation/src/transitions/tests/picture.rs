//! The picture of the transitions in the documentation.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::*;

/// The states from top to bottom. Exhausted is beside Rejected, and Ended beside all.
const COLUMN: [State; 7] = [
    New,
    In(Rejected),
    In(Deleting),
    In(Waiting),
    In(Creating),
    In(Recreated),
    In(Started),
];

const HEAD: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 830 660" role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="13">
  <title id="t">The phases of a re-creation</title>
  <desc id="d">A record goes from New through Rejected, Deleting, Waiting, Creating and Recreated to Started. A pod that is rejected again leads back to Rejected, or to Exhausted after the last allowed re-creation. Every phase may lead to Ended.</desc>
  <style>
    rect { fill: #eef3fb; stroke: #3b6db3; stroke-width: 1.5 }
    .end { fill: #e9f4ea; stroke: #3d8a4b }
    text { fill: #1d2733 }
    .small { font-size: 11px; fill: #4a5766 }
    path { stroke: #4a5766; stroke-width: 1.5; fill: none; marker-end: url(#a) }
    #a path { fill: #4a5766; stroke: none; marker-end: none }
    @media (prefers-color-scheme: dark) {
      rect { fill: #1c2a3d; stroke: #7fa9e0 }
      .end { fill: #1b3322; stroke: #79c388 }
      text { fill: #e6ecf3 }
      .small { fill: #b4c0cd }
      path { stroke: #b4c0cd }
      #a path { fill: #b4c0cd }
    }
  </style>
  <defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
"##;

/// The height of a state of the column.
fn height(state: State) -> usize {
    let at = COLUMN.iter().position(|one| *one == state);
    at.map_or_else(|| panic!("{state:?} has no place"), |at| 80 + at * 84)
}

/// The rules from one state to the other, those of live reads in parentheses.
fn rules(from: State, to: State) -> String {
    let is_here = |one: &&Transition| (one.0, one.2) == (from, to);
    let decided = DECIDED
        .iter()
        .filter(is_here)
        .map(|one| one.1.name.to_owned());
    let found = FOUND.iter().filter(is_here);
    let found = found.map(|one| format!("({})", one.1.name));
    decided.chain(found).collect::<Vec<_>>().join(", ")
}

/// A state, with the rules that keep it.
fn state(picture: &mut String, state: State, [left, top, width, tall]: [usize; 4]) {
    let (name, class) = match state {
        In(phase) if phase.is_final() => (phase.as_str(), " class=\"end\""),
        In(phase) => (phase.as_str(), ""),
        New | NoRecord => ("New", ""),
    };
    let rules = rules(state, state);
    let (middle, line) = (left + width / 2, top + tall / 2);
    let name_at = if rules.is_empty() { line + 5 } else { line - 3 };
    writeln!(
        picture,
        "  <rect{class} x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{tall}\" rx=\"6\"/>\n  \
         <text x=\"{middle}\" y=\"{name_at}\" text-anchor=\"middle\">{name}</text>"
    )
    .unwrap();
    label(picture, &rules, (middle, line + 13, "middle"));
}

/// Rules, if there are any.
fn label(picture: &mut String, rules: &str, (x, y, anchor): (usize, usize, &str)) {
    if !rules.is_empty() {
        writeln!(
            picture,
            "  <text class=\"small\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{rules}</text>"
        )
        .unwrap();
    }
}

/// The line of an arrow, and where its label stands and ends or begins.
fn line(from: State, to: State) -> (String, usize, usize, &'static str) {
    match (from, to) {
        (NoRecord, New) => ("M320 30V54".to_owned(), 328, 45, "start"),
        (_, In(Ended)) => {
            let y = height(from);
            (format!("M404 {y}H686"), 545, y - 7, "middle")
        }
        (In(Rejected), In(Exhausted)) => {
            let y = height(from) - 9;
            (format!("M236 {y}H162"), 199, y - 7, "middle")
        }
        (In(Waiting), In(Exhausted)) => {
            let (low, high) = (height(from) - 9, height(In(Rejected)) + 17);
            (format!("M236 {low}H30V{high}"), 37, low - 40, "start")
        }
        (In(Recreated), In(Rejected)) => {
            let (low, high) = (height(from) + 12, height(to) + 17);
            let label = (low + high) / 2 + 40;
            (format!("M236 {low}H90V{high}H232"), 97, label, "start")
        }
        (In(Waiting), In(Recreated)) => {
            let (high, low) = (height(from) + 6, height(to) - 8);
            let label = (low + high) / 2;
            (format!("M236 {high}H216V{low}H232"), 211, label, "end")
        }
        _ => {
            let (top, end) = (height(from) + 24, height(to) - 26);
            assert_eq!(end - top, 34, "no line for {from:?} to {to:?}");
            (format!("M320 {top}V{end}"), 328, top + 20, "start")
        }
    }
}

fn picture() -> String {
    let mut picture = HEAD.to_owned();
    picture.push_str("  <text x=\"320\" y=\"22\" text-anchor=\"middle\">no record</text>\n");
    for one in COLUMN {
        state(&mut picture, one, [238, height(one) - 22, 164, 44]);
    }
    let beside = height(In(Rejected));
    state(&mut picture, In(Exhausted), [8, beside - 31, 152, 44]);
    let (first, last) = (height(New), height(In(Recreated)));
    let ended = [690, first - 22, 130, last - first + 44];
    state(&mut picture, In(Ended), ended);
    let mut drawn = Vec::new();
    for (from, _, to) in DECIDED.iter().chain(FOUND) {
        if from == to || *to == NoRecord || drawn.contains(&(*from, *to)) {
            continue;
        }
        drawn.push((*from, *to));
        let (line, x, y, anchor) = line(*from, *to);
        writeln!(picture, "  <path d=\"{line}\"/>").unwrap();
        label(&mut picture, &rules(*from, *to), (x, y, anchor));
    }
    let deleted: Vec<&str> = DECIDED
        .iter()
        .filter(|(from, _, to)| *to == NoRecord && from != to)
        .map(|(_, rule, _)| rule.name)
        .collect();
    let rule = deleted[0];
    assert!(deleted.iter().all(|one| *one == rule), "{deleted:?}");
    writeln!(
        picture,
        "  <text class=\"small\" x=\"20\" y=\"650\">Rules below a name keep the phase. A rule in parentheses: a live read before the write finds \
         another state.</text>\n  <text class=\"small\" x=\"20\" y=\"634\">The rule {rule} deletes the record of a phase at \
         an end, and one that never got a status.</text>\n</svg>"
    )
    .unwrap();
    picture
}

/// `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -- the_picture_of_the_transitions` updates it.
#[test]
fn the_picture_of_the_transitions_matches_the_declaration() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/concepts/recreation.svg");
    let (now, wanted) = (fs::read_to_string(&path).unwrap_or_default(), picture());
    if now != wanted && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &wanted).unwrap();
        return;
    }
    assert!(now == wanted, "{} is outdated", path.display());
}
