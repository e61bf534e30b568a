//! Prints a report. The report of a drain, which ends with an [outcome](crate::passes), contains
//! it.

use std::fmt::Write as _;

use belayer_core::words::{one_or_many, printable};
use belayer_inspect::text::wrapped;

use crate::passes::Outcome;
use crate::report::{GateState, Left, NewHolds, Reason, Refused, Report};

/// Objects named per reason; `-o json` lists all.
const NAMED: usize = 10;

/// The next step for each reason.
fn next_step(reason: Reason) -> &'static str {
    match reason {
        Reason::InUse => {
            "Without the hold their data could be deleted while a pod uses it. Delete the pods that use them, or let \
             Kubernetes protect them (kube-controller-manager's persistentvolumeclaim-protection-controller and \
             the API server's admission plugin StorageObjectInUseProtection), then run drain again."
        }
        Reason::UseUnknown => "Run drain again once the pods can be listed.",
        Reason::OfAnotherVersion => {
            "Run drain with the version of belayer that added it. A user may have added it as well: if no version of belayer \
             has it, remove it with kubectl, or leave the namespace out with --except-namespace NAME."
        }
        Reason::SelectionUnknown => {
            "Use a build with that component, and pass its configuration with --config."
        }
        Reason::Unrecorded => {
            "If their holds were removed now, a pod that ran could be created again. Run drain again once the record can be \
             written."
        }
        Reason::InItsRecord => {
            "A running Belayer creates them during the drain, unless the API server denies them. Start Belayer and run \
             drain again, or save the records, which contain the pods, before you delete them (docs/src/install/uninstall.md)."
        }
    }
}

/// The report as text of at most `width` columns. The report of a drain, which ends with an
/// [outcome](crate::passes), contains it.
pub fn report(report: &Report, width: usize) -> String {
    let text = lines(report);
    let lines = text.lines().map(|line| {
        if line.chars().count() <= width {
            return format!("{line}\n");
        }
        let indent = " ".repeat(line.len() - line.trim_start().len());
        let text = wrapped(
            line,
            width.saturating_sub(indent.len() + 2),
            &format!("{indent}  "),
        );
        format!("{indent}{text}\n")
    });
    lines.collect()
}

fn lines(report: &Report) -> String {
    let mut text = String::new();
    policies(report, &mut text);
    released(report, &mut text);
    new_holds(report, &mut text);
    left(report, &mut text);
    troubles(
        "Denied by the API server",
        "Grant the named permissions (an admin may patch every kind); delete or change a policy or webhook that denies. \
         Then run drain again.",
        &report.refused,
        &mut text,
    );
    troubles(
        "Failed",
        "Run drain again: it continues where it stopped.",
        &report.failed,
        &mut text,
    );
    for unseen in &report.unseen {
        let line = format!("Could not read {}: {}", unseen.what, unseen.why);
        let _ = writeln!(text, "{}", printable(&line));
    }
    for dead in &report.dead_apis {
        let _ = writeln!(
            text,
            "Could not read API {}, which does not answer: {}",
            dead.what, dead.why
        );
    }
    if report.handed_over > 0 {
        let _ = writeln!(
            text,
            "{} for kubernetes.io/pvc-protection, which Kubernetes' own controller removes: \
             if {}, enable kube-controller-manager's persistentvolumeclaim-protection-controller.",
            one_or_many(
                report.handed_over,
                "PVC that is being deleted waits",
                "PVCs that are being deleted wait"
            ),
            if report.handed_over == 1 {
                "it stays"
            } else {
                "they stay"
            }
        );
    }
    for note in &report.notes {
        let _ = writeln!(text, "Note: {note}");
    }
    let _ = writeln!(text, "{}", verdict(report));
    way_back(report, &mut text);
    text
}

/// How an admin ends a drain that is not complete.
fn way_back(report: &Report, text: &mut String) {
    let is_draining = matches!(report.gate, GateState::Draining | GateState::WasDraining);
    if report.taken.dry_run || report.outcome == Outcome::Clean || !is_draining {
        return;
    }
    let _ = writeln!(
        text,
        "Belayer stays in draining mode. To end it without a complete drain, run `belayer drain --resume`, and restore the \
         admission policies with `helm rollback` (to the last revision) or `kubectl apply`."
    );
}

fn policies(report: &Report, text: &mut String) {
    if report.taken.policies.is_empty() {
        return;
    }
    let verb = if report.taken.dry_run {
        "Would remove"
    } else {
        "Removed"
    };
    let _ = writeln!(text, "{verb} admission policies that add holds:");
    for name in &report.taken.policies {
        let _ = writeln!(text, "  {name}");
    }
}

fn released(report: &Report, text: &mut String) {
    let holds: u64 = report.taken.holds.values().flat_map(|by| by.values()).sum();
    let verb = if report.taken.dry_run {
        "Would remove"
    } else {
        "Removed"
    };
    if holds == 0 {
        let objects = one_or_many(report.objects, "object", "objects");
        let kinds = if report.configured_kinds {
            "the configured kinds checked; --configured-kinds leaves out all others"
        } else {
            "all kinds checked"
        };
        let _ = writeln!(text, "{verb} no hold: {objects} of {kinds}.");
        return;
    }
    let _ = writeln!(
        text,
        "{verb} {} from {}:",
        one_or_many(holds, "hold", "holds"),
        one_or_many(report.taken.objects, "object", "objects")
    );
    for (hold, by) in &report.taken.holds {
        for (evidence, number) in by {
            let _ = writeln!(text, "  {number:>7}  {hold}  ({})", why(evidence));
        }
    }
}

fn why(evidence: &str) -> &'static str {
    match evidence {
        "Unselected" => "not selected any more",
        "SwitchedOff" => "controller switched off",
        "HandedOver" => "Kubernetes still protects the PVC",
        "Unused" => "no pod uses the PVC",
        _ => "drained",
    }
}

/// The namespaces in which a client keeps adding holds, and the next step.
fn new_holds(report: &Report, text: &mut String) {
    let NewHolds {
        since_pass,
        namespaces,
    } = &report.new_holds;
    if namespaces.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "Only new holds since pass {since_pass}; a client keeps adding them in"
    );
    for (namespace, objects) in namespaces.iter().take(NAMED) {
        let place = if namespace.is_empty() {
            "no namespace"
        } else {
            namespace
        };
        let objects = one_or_many(*objects, "object", "objects");
        let _ = writeln!(text, "  {place}: {objects}");
    }
    more(namespaces.len(), text);
    let _ = writeln!(
        text,
        "  The managedFields of such an object name the client; it may be an older Belayer that cannot be drained. Stop \
         it, or ignore such a namespace with --except-namespace NAME."
    );
}

fn left(report: &Report, text: &mut String) {
    for reason in [
        Reason::InUse,
        Reason::UseUnknown,
        Reason::OfAnotherVersion,
        Reason::SelectionUnknown,
        Reason::Unrecorded,
        Reason::InItsRecord,
    ] {
        let of: Vec<&Left> = report
            .left
            .iter()
            .filter(|left| left.reason == reason)
            .collect();
        if of.is_empty() {
            continue;
        }
        let (one, many, rest) = match reason {
            Reason::InUse => ("PVC", "PVCs", "in use that only Belayer protects"),
            Reason::UseUnknown => ("PVC", "PVCs", "whose use by pods is unknown"),
            Reason::OfAnotherVersion => ("hold", "holds", "of another version of belayer"),
            Reason::SelectionUnknown => ("hold", "holds", "whose selection is unknown"),
            Reason::Unrecorded => (
                "re-created pod",
                "re-created pods",
                "not yet written into the record",
            ),
            Reason::InItsRecord => (
                "pod that exists",
                "pods that exist",
                "only in a PodRecreation",
            ),
        };
        let number = one_or_many(of.len() as u64, one, many);
        let _ = writeln!(text, "Kept {number} {rest}:");
        for left in of.iter().take(NAMED) {
            let place = if left.namespace.is_empty() {
                String::new()
            } else {
                format!("{}/", left.namespace)
            };
            let hold = match reason {
                Reason::OfAnotherVersion | Reason::SelectionUnknown => format!(" {}", left.hold),
                _ => String::new(),
            };
            let line = format!("{place}{}/{}{hold}: {}", left.resource, left.name, left.why);
            let _ = writeln!(text, "  {}", printable(&line));
        }
        more(of.len(), text);
        let _ = writeln!(text, "  {}", next_step(reason));
    }
}

fn troubles(title: &str, next_step: &str, troubles: &[Refused], text: &mut String) {
    if troubles.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title} ({}):", troubles.len());
    for trouble in troubles.iter().take(NAMED) {
        let code = match trouble.code {
            0 => String::new(),
            code => format!("{code} "),
        };
        let line = format!("{}: {code}{}", trouble.what, trouble.why);
        let _ = writeln!(text, "  {}", printable(&line));
    }
    more(troubles.len(), text);
    let _ = writeln!(text, "  {next_step}");
}

fn more(all: usize, text: &mut String) {
    if all > NAMED {
        let _ = writeln!(text, "  and {} more; -o json lists all", all - NAMED);
    }
}

fn verdict(report: &Report) -> String {
    if report.taken.dry_run {
        return "Dry run: nothing was changed.".to_owned();
    }
    match report.outcome {
        Outcome::Clean => format!(
            "Clean: {} checked, {} in {:.0} s.",
            one_or_many(report.objects, "object", "objects"),
            one_or_many(u64::from(report.passes), "pass", "passes"),
            report.seconds
        ),
        Outcome::NewHolds => {
            "Removed all other holds, but new holds keep being added: see above.".to_owned()
        }
        Outcome::LeftOver => "Some holds stay: see above.".to_owned(),
        Outcome::Refused => "The API server denied requests: see above.".to_owned(),
        Outcome::Error if report.timed_out => format!(
            "Gave up after {:.0} s: no progress for --timeout. Drain ends after two consecutive passes that find nothing to \
             do. Run it again. If a client keeps adding holds, for example an older Belayer that cannot be \
             drained, stop it first.",
            report.seconds
        ),
        Outcome::Error => "Not finished: see above, then run drain again.".to_owned(),
    }
}
