//! Checks the actions of Belayer in a replay against the promises.

use std::time::Duration;

use super::promises::Until;
use super::recorded::RecordedRun;
use super::recording::Recording;
use super::replay::{Done, Replayed};

/// Time limit for a hold on an object that was created without it.
const HELD_WITHIN: Duration = Duration::from_millis(200);

/// Time limit for the release of a pod that its deletion ended, from the version that shows the end.
const PROMPT: Duration = Duration::from_millis(200);

/// Time limit for the release of a pod whose result was read, or whose workflow is deleted.
const SOON: Duration = Duration::from_secs(1);

/// Errors in the hold of one pod.
pub(super) fn pod(until: Until, run: &RecordedRun, done: &Done) -> Result<(), String> {
    if until == Until::NotMade {
        return if done.made {
            Err("it was made".into())
        } else {
            Ok(())
        };
    }
    if !done.made {
        return Err("it was not made: its predecessor was there still".into());
    }
    if until == Until::NeverHeld {
        return never_held(run, done);
    }
    held(run.created, done)?;
    let [(at, evidence)] = done.released[..] else {
        return Err(format!(
            "released {} times: {:?}",
            done.released.len(),
            done.released
        ));
    };
    let (name, from, by) = match until {
        Until::Consumed => (
            "Consumed",
            run.consumed(),
            run.consumed_plainly().map(|at| at + SOON),
        ),
        Until::EndedByDeletion => {
            let end = run.ended_by_deletion();
            ("EndedByDeletion", end, end.map(|end| end + PROMPT))
        }
        Until::NodeLost => {
            let lost = run.lost();
            ("NodeLost", lost, lost.map(|lost| lost + PROMPT))
        }
        Until::OwnerDeleting | Until::NeverHeld | Until::NotMade => {
            let deleted = run.owner_deleted;
            (
                "OwnerDeleting",
                deleted,
                deleted.map(|deleted| deleted + SOON),
            )
        }
    };
    let (Some(from), Some(by)) = (from, by) else {
        return Err(format!("the recording does not show what {until:?} needs"));
    };
    if at < from || at > by || evidence != name {
        return Err(format!(
            "released at {at:?} by {evidence}, promised: from {from:?} to {by:?} by {name}"
        ));
    }
    Ok(())
}

fn never_held(run: &RecordedRun, done: &Done) -> Result<(), String> {
    if let Some(at) = done.held {
        return Err(format!("Belayer held it at {at:?}"));
    }
    match done.released[..] {
        [] => Ok(()),
        [(at, "NeverHeld")] if at <= run.created + PROMPT => Ok(()),
        ref other => Err(format!("released: {other:?}")),
    }
}

/// Whether it was held in time: by Belayer, or from its creation.
fn held(created: Duration, done: &Done) -> Result<(), String> {
    match done.held {
        Some(at) if at > created + HELD_WITHIN => Err(format!("held only at {at:?}")),
        _ => Ok(()),
    }
}

/// Errors in the hold of the workflow, which must be released at its deletion, after all its pods.
pub(super) fn workflow(recording: &Recording, replayed: &Replayed) -> Result<(), String> {
    let mut versions = recording.workflow();
    let first = versions.next().ok_or("no workflow")?;
    let done = &replayed.objects[first.uid()];
    held(first.at, done)?;
    let deleted = versions.find(|version| version.gone || version.grace().is_some());
    let deleted = deleted
        .map(|version| version.at)
        .ok_or("it was never deleted")?;
    let pods = recording.steps().into_values().flatten();
    let releases = pods.flat_map(|uid| replayed.objects[&uid].released.clone());
    let last = releases.map(|(at, _)| at).max().unwrap_or_default();
    match done.released[..] {
        [(at, _)] if at >= deleted && at >= last && at <= deleted + SOON => Ok(()),
        ref other => Err(format!(
            "deleted at {deleted:?}, its last pod released at {last:?}; released: {other:?}"
        )),
    }
}
