//! The text output of `status`: tables like those of kubectl.

use std::fmt::Write as _;

use belayer_core::words::one_or_many;

use super::{Installation, Leader, Numbers, OtherLease, Place, Status};
use crate::report::age;
use crate::text::{Detail, Paint, Style, row};

/// Maximum number of namespaces shown without `-o wide`.
const SHOWN: usize = 10;

/// The whole status. The [module's example](crate::status) prints one.
pub fn text(status: &Status, style: Style, paint: &dyn Paint) -> String {
    let mut out = String::new();
    let opening = style.wrapped(&opening(status), 2);
    let _ = writeln!(out, "{}", paint.bold(&opening));
    let line = style.wrapped(&running(&status.installation), 2);
    let _ = writeln!(out, "{line}");
    out.push('\n');
    components(status, style, paint, &mut out);
    namespaces(status, style, paint, &mut out);
    for (heading, lines) in [
        ("Warning", &status.warnings),
        ("Unknown", &status.unknown),
        ("Note", &status.notes),
    ] {
        if !lines.is_empty() {
            out.push('\n');
        }
        for line in lines {
            let text = style.wrapped(&format!("{heading}: {line}"), 2);
            let _ = writeln!(out, "{text}");
        }
    }
    out
}

fn opening(status: &Status) -> String {
    let sum = |of: fn(&Numbers) -> u64| -> u64 {
        status.components.iter().map(|each| of(&each.numbers)).sum()
    };
    let (held, waiting) = (sum(|n| n.held), sum(|n| n.waiting));
    let server = status.versions.server.as_deref();
    let on = server.map_or_else(String::new, |version| format!(" on Kubernetes {version}"));
    let place = status.namespace.as_ref();
    let place = place.map_or_else(String::new, |name| format!(" in namespace {name}"));
    let least = if status.components.iter().all(|each| each.complete) {
        ""
    } else {
        "at least "
    };
    let objects = one_or_many(held, "object", "objects");
    match (held, waiting) {
        // Of what could not be listed, some deletions may wait.
        (_, 0) if !least.is_empty() => {
            format!("Belayer holds {least}{objects}{place}{on}.")
        }
        (0, _) => {
            let server =
                server.map_or_else(String::new, |version| format!(" (Kubernetes {version})"));
            format!("No object{place} has a finalizer of Belayer{server}.")
        }
        (_, 0) => {
            format!("Belayer holds {objects}{place}{on}; no deletion waits for it.")
        }
        (_, waiting) => {
            let wait = one_or_many(waiting, "deletion waits", "deletions wait");
            format!("Belayer holds {least}{objects}{place}{on}; {least}{wait} for it.")
        }
    }
}

fn running(installation: &Installation) -> String {
    let namespace = &installation.namespace;
    let Some(pods) = &installation.pods else {
        return format!("It is unknown whether it runs in {namespace}.");
    };
    let ready = pods.iter().filter(|pod| pod.ready).count();
    let mut leads = match &installation.leader {
        Some(leader) if !leader.lapsed => {
            format!("{} is the leader, {}", leader.identity, renewed(leader))
        }
        Some(leader) => format!("no leader, the last one was {}", leader.identity),
        None if !installation.unread_leases.is_empty() => "the leader is unknown".to_owned(),
        None if installation.other_leases.is_empty() => "no Lease is held".to_owned(),
        None => "no leader".to_owned(),
    };
    for OtherLease { lease, leader } in &installation.other_leases {
        let _ = match leader {
            Some(leader) if !leader.lapsed => {
                write!(
                    leads,
                    "; {} holds lease {lease}, {}",
                    leader.identity,
                    renewed(leader)
                )
            }
            _ => write!(leads, "; no replica holds lease {lease}"),
        };
    }
    if pods.is_empty() {
        let runs = match () {
            () if installation.is_led() => "It runs elsewhere",
            () if installation.may_be_led() => "It is unknown whether it runs",
            () => "It does not run",
        };
        return format!(
            "{runs}: no pod in {namespace} is labelled app.kubernetes.io/name=belayer; {leads}."
        );
    }
    let mut versions: Vec<&str> = pods.iter().map(|pod| pod.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    format!(
        "Version {} in {namespace}: {ready} of {} pods ready; {leads}.",
        versions.join(" and "),
        pods.len()
    )
}

fn renewed(leader: &Leader) -> String {
    let ago = leader.renewed_seconds_ago.map_or(0, |ago| ago.max(0));
    format!("renewed {} ago", age(ago))
}

fn components(status: &Status, style: Style, paint: &dyn Paint, out: &mut String) {
    let wide = style.detail == Detail::Wide;
    let mut rows = vec![header(&["CONTROLLER"], wide.then_some("HOLD"))];
    for each in &status.components {
        let mut row = vec![each.component.to_owned()];
        row.extend(numbers(&each.numbers));
        if wide {
            row.push(each.holds.join(","));
        }
        rows.push(row);
    }
    table(&rows, style, paint, out);
}

fn namespaces(status: &Status, style: Style, paint: &dyn Paint, out: &mut String) {
    if status.namespaces.is_empty() {
        return;
    }
    let shown = match style.detail {
        Detail::Usual => SHOWN,
        Detail::Wide => usize::MAX,
    };
    let mut rows = vec![header(&["NAMESPACE", "CONTROLLER"], None)];
    rows.extend(status.namespaces.iter().take(shown).map(|place: &Place| {
        let mut row = vec![place.namespace.clone(), place.component.to_owned()];
        row.extend(numbers(&place.numbers));
        row
    }));
    out.push('\n');
    table(&rows, style, paint, out);
    let more = status.namespaces.len().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(
            out,
            "{}",
            paint.dim(&format!("and {more} more (-o wide shows all)"))
        );
    }
}

fn header(first: &[&str], last: Option<&str>) -> Vec<String> {
    let numbers = ["HELD", "WAITING", "DENIED", "OLDEST"];
    let all = first.iter().copied().chain(numbers).chain(last);
    all.map(str::to_owned).collect()
}

fn numbers(numbers: &Numbers) -> [String; 4] {
    let oldest = match &numbers.oldest {
        Some(oldest) => format!(
            "{} {}/{}/{}",
            age(oldest.age_seconds),
            oldest.namespace,
            oldest.resource,
            oldest.name
        ),
        None => "-".to_owned(),
    };
    [
        numbers.held.to_string(),
        numbers.waiting.to_string(),
        numbers.denied.to_string(),
        oldest,
    ]
}

/// Columns as wide as their widest cell, separated by three spaces, without trailing spaces. What does not fit
/// goes to the next line.
fn table(rows: &[Vec<String>], style: Style, paint: &dyn Paint, out: &mut String) {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for (index, cells) in rows.iter().enumerate() {
        let cells = cells.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        let line = row(&cells, "   ", style.width);
        let line = if index == 0 { paint.dim(&line) } else { line };
        let _ = writeln!(out, "{line}");
    }
}
