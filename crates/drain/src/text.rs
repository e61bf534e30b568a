//! A report in words.

use std::fmt::Write as _;

use belayer_core::words::one_or_many;

use crate::passes::Outcome;
use crate::report::{Left, NewHolds, Reason, Refused, Report};

/// Objects of one sort that are named; `-o json` names all.
const NAMED: usize = 10;

/// The way out for each reason that something stays.
fn way_out(reason: Reason) -> &'static str {
    match reason {
        Reason::InUse => {
            "Their data would be lost with them, so they stay. Delete the pods that use them, or let\n  \
             Kubernetes protect them (kube-controller-manager's persistentvolumeclaim-protection-controller and\n  \
             the API server's admission plugin StorageObjectInUseProtection), then run drain again."
        }
        Reason::UseUnknown => "Drain again once the pods can be listed.",
        Reason::OfAnotherVersion => "Drain with the version of belayer that ties it.",
        Reason::SelectionUnknown => {
            "Use a build with that component, and its configuration by --config."
        }
        Reason::Unrecorded => {
            "If their holds were removed now, a pod that ran could be created again. Drain again once the record can be\n  \
             written."
        }
        Reason::InItsRecord => {
            "A running Belayer creates them during the drain, unless the API server refuses them. Start Belayer and run\n  \
             drain again, or save the records, which contain the pods, before you delete them (docs/uninstall.md)."
        }
    }
}

/// What people read.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    policies(report, &mut text);
    released(report, &mut text);
    new_holds(report, &mut text);
    left(report, &mut text);
    troubles(
        "Refused by the API server",
        "Let the named rights or policy pass (an admin may patch every kind; a policy or webhook that denies must \
         be\n  taken away or changed), then run drain again.",
        &report.refused,
        &mut text,
    );
    troubles(
        "Not done",
        "Run drain again: it goes on where it was.",
        &report.failed,
        &mut text,
    );
    for unseen in &report.unseen {
        let _ = writeln!(text, "Not looked at: {}: {}", unseen.what, unseen.why);
    }
    for dead in &report.dead_apis {
        let _ = writeln!(
            text,
            "Does not answer, so it was not looked at: {}: {}",
            dead.what, dead.why
        );
    }
    if report.handed_over > 0 {
        let _ = writeln!(
            text,
            "{} for kubernetes.io/pvc-protection, which is Kubernetes' own to take off:\n  \
             if {}, switch kube-controller-manager's persistentvolumeclaim-protection-controller on.",
            one_or_many(
                report.handed_over,
                "claim that is being deleted waits",
                "claims that are being deleted wait"
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
    text
}

/// What adds holds at creation goes first.
fn policies(report: &Report, text: &mut String) {
    if report.taken.policies.is_empty() {
        return;
    }
    let verb = if report.taken.dry_run {
        "Would remove"
    } else {
        "Removed"
    };
    let _ = writeln!(text, "{verb} what adds holds at creation:");
    for name in &report.taken.policies {
        let _ = writeln!(text, "  {name}");
    }
}

fn released(report: &Report, text: &mut String) {
    let holds: u64 = report.taken.holds.values().flat_map(|by| by.values()).sum();
    let verb = if report.taken.dry_run {
        "Would take"
    } else {
        "Took"
    };
    if holds == 0 {
        let looked = one_or_many(report.objects, "object", "objects");
        let _ = writeln!(
            text,
            "{verb} no hold off: looked at {looked} of every kind."
        );
        return;
    }
    let _ = writeln!(
        text,
        "{verb} {} off {}:",
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
        "Unselected" => "nothing selects it any more",
        "SwitchedOff" => "its component is switched off",
        "HandedOver" => "Kubernetes goes on protecting the claim",
        "Unused" => "no pod uses the claim",
        _ => "drained",
    }
}

/// Where someone keeps adding holds, and what to do about it.
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
        "Only new holds since pass {since_pass}: someone keeps adding them, in"
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
        "  The managedFields of such an object show who does; it may be an older Belayer that cannot be drained. Stop\n  \
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
            Reason::InUse => ("claim", "claims", "in use that only Belayer holds"),
            Reason::UseUnknown => (
                "claim",
                "claims",
                "of which it is not known whether a pod uses them",
            ),
            Reason::OfAnotherVersion => ("hold", "holds", "of another version of belayer"),
            Reason::SelectionUnknown => (
                "hold",
                "holds",
                "of which it is not known whether something selects them",
            ),
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
        let _ = writeln!(text, "Left, {number} {rest}:");
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
            let _ = writeln!(
                text,
                "  {place}{}/{}{hold}: {}",
                left.resource, left.name, left.why
            );
        }
        more(of.len(), text);
        let _ = writeln!(text, "  {}", way_out(reason));
    }
}

fn troubles(title: &str, way_out: &str, troubles: &[Refused], text: &mut String) {
    if troubles.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}, {}:", troubles.len());
    for trouble in troubles.iter().take(NAMED) {
        let code = match trouble.code {
            0 => String::new(),
            code => format!("{code} "),
        };
        let _ = writeln!(text, "  {}: {code}{}", trouble.what, trouble.why);
    }
    more(troubles.len(), text);
    let _ = writeln!(text, "  {way_out}");
}

fn more(all: usize, text: &mut String) {
    if all > NAMED {
        let _ = writeln!(text, "  and {} more; -o json names all", all - NAMED);
    }
}

fn verdict(report: &Report) -> String {
    if report.taken.dry_run {
        return "Dry run: nothing was changed.".to_owned();
    }
    match report.outcome {
        Outcome::Clean => format!(
            "Clean: {} looked at, {} in {:.0} s.",
            one_or_many(report.objects, "object", "objects"),
            one_or_many(u64::from(report.passes), "pass", "passes"),
            report.seconds
        ),
        Outcome::NewHolds => {
            "Everything else is released, but new holds keep being added: see above.".to_owned()
        }
        Outcome::LeftOver => "Not everything could go: see what is left above.".to_owned(),
        Outcome::Refused => "The API server refuses: see above.".to_owned(),
        Outcome::Error if report.timed_out => format!(
            "Gave up after {:.0} s: there was no progress for the time of --timeout, and there were no two passes in a \
             row, seconds apart, with nothing left to do. Run drain again. If something keeps adding holds, such as an \
             older Belayer that cannot be drained, stop it first.",
            report.seconds
        ),
        Outcome::Error => "Not finished: see above, then run drain again.".to_owned(),
    }
}
