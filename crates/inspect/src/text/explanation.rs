//! The text output of `explain`.

use std::fmt::Write as _;

use belayer_core::words::one_or_many;
use belayer_holds::names;

use super::{Paint, Style, field, group};
use crate::explain::{Action, Explained, Explanation, HeldPod, Subject};
use crate::report::{Group, Verdict, age};

/// The whole explanation. The [example of explanations](crate::explain) prints one.
pub fn explanation(
    explanation: &Explanation,
    now: jiff::Timestamp,
    style: Style,
    paint: &dyn Paint,
) -> String {
    let mut out = String::new();
    let opening = opening(explanation, now);
    let _ = writeln!(out, "{}", paint.bold(&style.wrapped(&opening, 2)));
    let all = &explanation.belayer;
    for explained in all.iter().filter(|one| !is_irrelevant(one, all)) {
        out.push('\n');
        component(explained, style, paint, &mut out);
    }
    if !explanation.pods.is_empty() {
        out.push('\n');
        pods(&explanation.pods, style, paint, &mut out);
    }
    let is_new = |group: &&Group| !is_covered(group, &explanation.belayer);
    let shown: Vec<&Group> = explanation.groups.iter().filter(is_new).collect();
    // Only the groups shown are numbered, without gaps.
    let number_of = |number: usize| {
        let at = shown.iter().position(|group| group.number == number);
        at.map(|index| index + 1)
    };
    for (index, one) in shown.iter().enumerate() {
        let mut one = (*one).clone();
        one.number = index + 1;
        for object in &mut one.objects {
            let also = object.also_in.iter();
            object.also_in = also.filter_map(|number| number_of(*number)).collect();
        }
        out.push('\n');
        out.push_str(&group(&one, style, paint));
    }
    // Belayer's own holds are explained above.
    let others: Vec<_> = explanation
        .finalizers
        .iter()
        .filter(|finalizer| {
            let explained = |explained: &Explained| explained.hold == finalizer.name;
            !explanation.belayer.iter().any(explained)
        })
        .collect();
    if !others.is_empty() {
        out.push('\n');
        let _ = writeln!(
            out,
            "When it is deleted, these finalizers must be removed first:"
        );
        for finalizer in others {
            let text = match &finalizer.known {
                Some(known) => format!("{} ({}): {}", finalizer.name, known.owner, known.guards),
                None => format!(
                    "{}: not a known finalizer; its controller is unknown",
                    finalizer.name
                ),
            };
            let _ = writeln!(out, "  - {}", style.wrapped(&text, 4));
        }
    }
    for missing in &explanation.missing {
        let text = style.wrapped(&format!("Unknown: {missing}"), 2);
        let _ = write!(out, "\n{text}\n");
    }
    out
}

/// The held pods of a workflow, one line or two for each component that holds one.
fn pods(pods: &[HeldPod], style: Style, paint: &dyn Paint, out: &mut String) {
    let count = one_or_many(pods.len(), "pod is", "pods are");
    let _ = writeln!(out, "{} held:", paint.bold(&format!("Its {count}")));
    for pod in pods {
        for one in &pod.belayer {
            let row = &one.row;
            let waits = match one.missing.first() {
                Some(missing) => missing.clone(),
                None if one.action == Action::Release => {
                    format!("a running Belayer releases it: {}", row.says)
                }
                None => row.says.clone(),
            };
            let text = format!(
                "{} ({}, rule {}): {waits}",
                pod.name, one.component, row.number
            );
            let _ = writeln!(out, "  - {}", style.wrapped(&text, 4));
        }
    }
    for (index, note) in notes_about(pods).iter().enumerate() {
        let name = if index == 0 { "Note" } else { "" };
        field(name, note, style, paint, out);
    }
}

/// The notes about pods, each once; the pod is named if a note is not about all of them.
fn notes_about(pods: &[HeldPod]) -> Vec<String> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for pod in pods {
        for note in pod.belayer.iter().flat_map(|one| &one.notes) {
            let known = notes.iter_mut().find(|(known, _)| known == note);
            match known {
                Some((_, names)) if names.contains(&&*pod.name) => {}
                Some((_, names)) => names.push(&pod.name),
                None => notes.push((note, vec![&pod.name])),
            }
        }
    }
    let text = |(note, names): (&str, Vec<&str>)| {
        if names.len() == pods.len() {
            note.to_owned()
        } else {
            format!("{}: {note}", names.join(", "))
        }
    };
    notes.into_iter().map(text).collect()
}

/// Whether the component's explanation already covers this group. It does not if the group has more proof,
/// for example that the controller does not run.
fn is_covered(group: &Group, belayer: &[Explained]) -> bool {
    let is_held = belayer.iter().any(|explained| explained.held);
    group.verdict == Verdict::HeldByBelayer && group.proof.len() <= 1 && is_held
}

/// Whether to omit a component: it does nothing about the object while another component does. If no component
/// acts, each one reports why not.
fn is_irrelevant(explained: &Explained, all: &[Explained]) -> bool {
    let acts = |one: &Explained| one.action != Action::Nothing || one.held;
    let reports = !explained.missing.is_empty() || !explained.notes.is_empty();
    !acts(explained) && !reports && all.iter().any(acts)
}

/// Belayer's finalizers on it, also those on a kind that their controllers do not hold.
fn belayers(explanation: &Explanation) -> Vec<&str> {
    let blocking = explanation
        .groups
        .iter()
        .filter_map(|group| group.finalizer.as_deref());
    let mut all: Vec<&str> = explanation
        .finalizers
        .iter()
        .map(|one| &*one.name)
        .collect();
    all.extend(blocking);
    all.retain(|name| {
        names::CONTROLLERS
            .iter()
            .any(|known| known.finalizer == *name)
    });
    all.dedup();
    all
}

fn opening(explanation: &Explanation, now: jiff::Timestamp) -> String {
    let object = &explanation.object;
    let place = place(object);
    let held: Vec<_> = explanation
        .belayer
        .iter()
        .filter(|explained| explained.held)
        .map(|explained| explained.component)
        .collect();
    let held = match held.as_slice() {
        [] if explanation.belayer.is_empty() => String::new(),
        [] => match belayers(explanation).as_slice() {
            [] => " Belayer does not hold it.".to_owned(),
            finalizers => format!(
                " It has a finalizer of Belayer ({}).",
                finalizers.join(", ")
            ),
        },
        components => format!(" Belayer holds it ({}).", components.join(", ")),
    };
    let state = match object.deletion_timestamp {
        None => "is not being deleted.".to_owned(),
        Some(since) if object.stuck => {
            let ago = now.duration_since(since).as_secs();
            format!(
                "is stuck in Terminating, {} past its grace period.",
                age(ago)
            )
        }
        Some(until) => {
            let left = until.duration_since(now).as_secs();
            format!("is being deleted; its grace period ends in {}.", age(left))
        }
    };
    format!("{place} {state}{held}")
}

fn place(object: &Subject) -> String {
    if object.namespace.is_empty() {
        format!("{}/{}", object.resource, object.name)
    } else {
        format!("{}/{}/{}", object.namespace, object.resource, object.name)
    }
}

fn component(explained: &Explained, style: Style, paint: &dyn Paint, out: &mut String) {
    let action = match (explained.action, explained.held) {
        (Action::Release, _) => "releases it",
        (Action::AddHold, _) => "adds its hold",
        (Action::Record, _) => "writes its record",
        (Action::Delete, _) if explained.missing.is_empty() => "deletes it",
        (Action::Delete, _) => "deletes it later",
        (Action::WriteStatus, _) => "writes its status",
        (Action::CreatePod, _) => "creates its pod",
        (Action::DeletePod, _) => "deletes its pod",
        (Action::AnnotatePod, _) => "annotates its pod with the reason why it is ignored",
        (Action::Keep, true) => "keeps its hold",
        (Action::Keep, false) => "adds no hold now",
        (Action::Nothing, _) => "does nothing",
    };
    let text = format!("{}: {action} ({})", explained.component, explained.hold);
    let text = style.wrapped(&text, 4);
    let rest = text.strip_prefix(explained.component).unwrap_or(&text);
    let _ = writeln!(out, "{}{rest}", paint.bold(explained.component));
    let mut field = |name: &str, text: &str| super::field(name, text, style, paint, out);
    let row = &explained.row;
    field(
        "Rule",
        &format!("{} ({}): {}", row.number, row.name, row.says),
    );
    if let Some(evidence) = &explained.evidence {
        field("Evidence", evidence);
    }
    for (index, missing) in explained.missing.iter().enumerate() {
        field(if index == 0 { "Missing" } else { "" }, missing);
    }
    if let Some(why_not) = &explained.why_not {
        field("Why not", why_not);
    }
    field("Next", &explained.next);
    for (index, note) in explained.notes.iter().enumerate() {
        field(if index == 0 { "Note" } else { "" }, note);
    }
}
