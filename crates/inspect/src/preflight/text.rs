//! The text output of `check`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::text::{Paint, Style};

use super::report::{About, Finding, Level, PartReport, Report};

/// Columns before the text of a finding.
const LABEL: usize = 11;

/// The whole report. The report is one of [`check`](crate::preflight::check) about the
/// [parts](crate::preflight).
pub fn text(report: &Report, style: Style, paint: &dyn Paint) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", paint.bold(&opening(report)));
    let server = report.server.as_deref().unwrap_or("of an unknown version");
    let line = format!("Kubernetes {server}; permissions of {}.", whose(report));
    let _ = writeln!(out, "{}", style.wrapped(&line, 0));
    let mut reasons = BTreeSet::new();
    for part in &report.parts {
        out.push('\n');
        let _ = writeln!(out, "{}", paint.bold(&heading(part)));
        let mut findings = Vec::new();
        for finding in &part.findings {
            if !is_unknown_permission(finding) || reasons.insert(&*finding.consequence) {
                findings.push(counted(finding, report));
            }
        }
        for finding in merged(findings) {
            self::finding(&finding, style, paint, &mut out);
        }
    }
    out
}

fn is_unknown_permission(finding: &Finding) -> bool {
    (finding.about, finding.level) == (About::Permission, Level::Unknown)
}

/// A permission that could not be checked, for all that could not be checked for the same reason.
fn counted(finding: &Finding, report: &Report) -> Finding {
    let all = report.of(Level::Unknown).filter(|one| {
        is_unknown_permission(one)
            && is_unknown_permission(finding)
            && one.consequence == finding.consequence
    });
    match all.count() {
        0 | 1 => finding.clone(),
        count => Finding {
            what: format!("{count} permissions"),
            ..finding.clone()
        },
    }
}

fn whose(report: &Report) -> String {
    match report.subject.as_str() {
        "your own" => "your own account; --service-account checks Belayer's".to_owned(),
        other => other.to_owned(),
    }
}

fn opening(report: &Report) -> String {
    let (missing, unknown) = (
        report.of(Level::Missing).count(),
        report.of(Level::Unknown).count(),
    );
    match (missing, unknown) {
        (0, 0) => "All requirements are met.".to_owned(),
        (0, 1) => "Nothing is known to be missing; 1 thing could not be checked.".to_owned(),
        (0, n) => format!("Nothing is known to be missing; {n} things could not be checked."),
        (1, 0) => "1 thing is missing.".to_owned(),
        (n, 0) => format!("{n} things are missing."),
        (1, m) => format!("1 thing is missing, and {m} could not be checked."),
        (n, m) => format!("{n} things are missing, and {m} could not be checked."),
    }
}

fn heading(part: &PartReport) -> String {
    if part.rights_needed == 0 {
        return part.name.clone();
    }
    format!(
        "{}: {} of {} permissions",
        part.name, part.rights_granted, part.rights_needed
    )
}

/// The findings; permissions that differ only in their verb are one: `get, list, watch namespaces`.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in findings {
        if let Some(last) = merged.last_mut()
            && let Some(what) = with_verb_of(last, &finding)
        {
            last.what = what;
        } else {
            merged.push(finding);
        }
    }
    merged
}

/// What `last` is about, with the verb of `next` added; `None` if more than the verb differs.
fn with_verb_of(last: &Finding, next: &Finding) -> Option<String> {
    let (verbs, object) = last.what.rsplit_once(", ").map_or_else(
        || last.what.split_once(' '),
        |(before, end)| {
            let (verb, object) = end.split_once(' ')?;
            Some((&last.what[..before.len() + 2 + verb.len()], object))
        },
    )?;
    let (verb, of) = next.what.split_once(' ')?;
    let same = last.about == About::Permission
        && next.about == About::Permission
        && (last.level, &last.consequence, &last.fix) == (next.level, &next.consequence, &next.fix);
    (same && of == object).then(|| format!("{verbs}, {verb} {object}"))
}

fn finding(finding: &Finding, style: Style, paint: &dyn Paint, out: &mut String) {
    use crate::report::Verdict;
    let (level, verdict) = match finding.level {
        Level::Missing => ("missing", Verdict::ControllerDown),
        Level::Unknown => ("unknown", Verdict::Unknown),
        Level::Note => ("note", Verdict::Waiting),
    };
    let label = paint.verdict(verdict, &format!("{level:<7}"));
    let indent = " ".repeat(LABEL);
    let joint = match finding.level {
        Level::Unknown => "",
        Level::Missing | Level::Note if finding.consequence.is_empty() => "",
        Level::Missing if finding.about == About::Permission => "without it: ",
        Level::Missing | Level::Note => "",
    };
    let _ = writeln!(out, "  {label}  {}", style.wrapped(&finding.what, LABEL));
    if !finding.consequence.is_empty() {
        let text = format!("{joint}{}", finding.consequence);
        let _ = writeln!(out, "{indent}{}", style.wrapped(&text, LABEL));
    }
    if let Some(fix) = &finding.fix {
        let text = style.wrapped(fix, LABEL);
        let _ = writeln!(out, "{indent}{}", paint.dim(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::report::API_VERSION;
    use crate::text::Plain;

    #[test]
    fn a_report_has_what_is_missing_the_consequence_and_the_fix() {
        let report = Report {
            api_version: API_VERSION,
            kind: "CheckReport",
            server: Some("v1.36.3".into()),
            client: "0.1.0",
            subject: "system:serviceaccount:belayer-system:belayer".into(),
            parts: vec![PartReport {
                name: "pod-finalizer".into(),
                rights_needed: 7,
                rights_granted: 6,
                findings: vec![
                    Finding::missing(About::Permission, "patch pods", "holds stay")
                        .fix("apply ClusterRole belayer-pod-finalizer from the manifests"),
                    Finding::missing(About::Permission, "list nodes", "nothing"),
                    Finding::missing(About::Permission, "watch nodes", "nothing"),
                    Finding::missing(About::Permission, "get nodes", "nothing"),
                    Finding::missing(About::Permission, "get pods", "nothing"),
                    Finding::note(About::Policy, "policy x does not exist", "holds are late"),
                ],
            }],
        };
        let expected = "\
5 things are missing.
Kubernetes v1.36.3; permissions of system:serviceaccount:belayer-system:belayer.

pod-finalizer: 6 of 7 permissions
  missing  patch pods
           without it: holds stay
           apply ClusterRole belayer-pod-finalizer from the manifests
  missing  list, watch, get nodes
           without it: nothing
  missing  get pods
           without it: nothing
  note     policy x does not exist
           holds are late
";
        assert_eq!(text(&report, Style::default(), &Plain), expected);
    }
}
