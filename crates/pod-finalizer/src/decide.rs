//! The decision table of pod-finalizer: a pure function, one arm per rule.
//! It matches the rules of [`row`].

mod capture;
mod cleanup;
mod missed;
mod owner;
mod status;
mod unread;

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;

use belayer_holds::decision::{Decision, Missing, Notice, Reach, Rule, Write};

pub(crate) use cleanup::waits_for_workflow;
pub(crate) use missed::{is_awaited, is_missed};
pub(crate) use unread::{is_node_present, unread};

use crate::SETTLE;
use crate::evidence::Evidence;
use crate::outcome::Recorded;
use crate::profile::Mode;
use crate::query::PodQuery;
use crate::row;
use crate::snapshot::{BacklogLimit, MassRelease, PodView, Selection, Snapshot, Watched};
use belayer_holds::selection::NotSelected;

/// A decision about a pod. It matches the rules of [`row`].
pub type PodDecision = Decision<Evidence, PodQuery, Recorded>;

/// Delay before a live read is repeated whose answer was inconclusive.
pub const RECHECK: Duration = Duration::from_secs(30);

/// A pod whose deletion waits for Belayer longer than this after its grace period gets the Event `DeletionWaits`.
pub const REPORT_AFTER: Duration = Duration::from_secs(10);

/// Decides about one pod. It matches the rules of [`row`].
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> PodDecision {
    let Some(pod) = &snapshot.pod else {
        return Decision::nothing(row::NOT_OURS);
    };
    match (pod.held, pod.adopted.is_empty()) {
        (true, _) => held(pod, snapshot, now),
        // Only an adopted finalizer is present: the pod is released like a held pod, and otherwise gets Belayer's
        // finalizer like any other.
        (false, false) => match weigh(pod, snapshot.mass_release, now) {
            Verdict::Keep(_) if pod.deleting.is_none() && !unread::is_never_held(pod) => {
                unheld(pod, snapshot, now)
            }
            _ => held(pod, snapshot, now),
        },
        (false, true) => unheld(pod, snapshot, now),
    }
}

fn held(pod: &PodView, snapshot: &Snapshot, now: Timestamp) -> PodDecision {
    let decision = match weigh(pod, snapshot.mass_release, now) {
        Verdict::Release(row, evidence) => released(row, evidence, pod),
        Verdict::Record(which) => Decision::write(row::CAPTURE, Write::Step(which)),
        Verdict::Keep(reasons) => keep(pod, reasons, now).with_requeue_after(snapshot.resync),
    };
    match capture::refused(pod) {
        // Also if the pod is released all the same.
        Some(why) => decision.with_notice(Notice::warning("OutcomeNotRecorded", why)),
        None => decision,
    }
}

/// Rules 1, 13 and 14.
fn unheld(pod: &PodView, snapshot: &Snapshot, now: Timestamp) -> PodDecision {
    let Selection::By { profile, .. } = &pod.selection else {
        return Decision::nothing(row::NOT_OURS);
    };
    if unread::is_never_held(pod) {
        return Decision::nothing(row::NEVER_HELD);
    }
    if pod.deleting.is_some() {
        return Decision::nothing(row::TOO_LATE);
    }
    match weigh(pod, snapshot.mass_release, now) {
        // A held pod would be released at once, so Belayer does not add its finalizer.
        Verdict::Release(_, evidence) => cleanup::decide(pod, evidence),
        // The pod has ended: record its outcome first, before any finalizer is added.
        Verdict::Record(which) => Decision::write(row::CAPTURE, Write::Step(which)),
        // An owner that is not in the cache may be gone: a live read avoids adding and removing the finalizer.
        Verdict::Keep(reasons) if reasons.asks_now() => reasons.decision(row::ADD_HOLD),
        Verdict::Keep(_) => match (closed(snapshot.backlog), profile.mode) {
            (Some(why), _) => Decision::missing(row::ADD_HOLD, Missing::Event(why.into())),
            (None, Mode::Enforce) => Decision::write(row::ADD_HOLD, Write::AddHold),
            (None, Mode::Observe) => Decision::missing(
                row::ADD_HOLD,
                Missing::Event(format!("profile {} only observes", profile.name).into()),
            ),
        },
    }
}

fn closed(limit: BacklogLimit) -> Option<&'static str> {
    match limit {
        BacklogLimit::NotReached => None,
        BacklogLimit::Reached => Some(
            "the backlog limit is reached: too many pods that are being deleted are still held",
        ),
        BacklogLimit::ReachedInNamespace => Some(
            "the backlog limit of its namespace is reached: too many pods there that are being deleted are still held",
        ),
    }
}

fn released(row: &'static Rule, evidence: Evidence, pod: &PodView) -> PodDecision {
    let late = matches!(evidence, Evidence::ReleaseAfter);
    // Other controllers' finalizers stay until the result was read, or no consumer exists that could read it.
    let adopted = if evidence.is_unread() {
        Box::default()
    } else {
        pod.adopted.clone()
    };
    let decision = Decision::write(row, Write::Release(evidence)).adopting(adopted);
    if !late {
        return decision;
    }
    let waited = match &pod.selection {
        Selection::By { profile, .. } => profile.release_after.unwrap_or_default(),
        Selection::None | Selection::Ignored => Duration::ZERO,
    };
    decision.with_notice(Notice::warning(
        "ReleasedWithoutEvidence",
        format!(
            "released because releaseAfter ({} s) ran out, not because its result was read",
            waited.as_secs()
        ),
    ))
}

/// Rule 12, or the rule whose evidence is still missing.
fn keep(pod: &PodView, reasons: Reasons, now: Timestamp) -> PodDecision {
    // An outcome that is not final belongs to no rule, because it delays no release (A12).
    let waits_for_consumer = reasons.row.is_none() && !capture::is_read(pod);
    let mut decision = reasons.decision(row::KEEP);
    if waits_for_consumer || decision.missing.is_empty() {
        decision.missing.insert(0, Missing::Event(waits_for(pod)));
    }
    let Some(deleting) = pod.deleting else {
        return decision;
    };
    if let Some(why) = unread::held_because(pod) {
        decision.missing.push(Missing::Event(why));
    }
    let recheck = decision.requeue_after;
    let waits = elapsed(deleting, now);
    let mut next = None;
    if waits < REPORT_AFTER {
        next = Some(REPORT_AFTER - waits);
    } else {
        let message = format!(
            "deletion waits because Belayer holds this pod: {}",
            decision.missing_messages().join("; ")
        );
        decision = decision.with_notice(Notice::normal("DeletionWaits", message));
    }
    let requeue_after = match (next, recheck) {
        (Some(next), Some(recheck)) => Some(next.min(recheck)),
        (next, recheck) => next.or(recheck),
    };
    Decision {
        requeue_after,
        // Exact, unlike a requeue.
        due: until_release_after(pod, waits),
        ..decision
    }
}

fn until_release_after(pod: &PodView, waits: Duration) -> Option<Duration> {
    match &pod.selection {
        Selection::By { profile, .. } => profile
            .release_after
            .map(|limit| until_limit(pod, limit, waits)),
        Selection::None | Selection::Ignored => None,
    }
}

/// The evidence that releases the pod, or the reasons to keep it.
enum Verdict {
    Release(&'static Rule, Evidence),
    /// Rule 7: the outcome must be recorded first.
    Record(Recorded),
    Keep(Reasons),
}

/// The missing evidence, with the first rule that it could make match.
#[derive(Default)]
struct Reasons {
    row: Option<&'static Rule>,
    missing: Vec<Missing<PodQuery>>,
    notices: Vec<Notice>,
    requeue_after: Option<Duration>,
}

impl Reasons {
    fn add(&mut self, row: &'static Rule, missing: Missing<PodQuery>) {
        self.row.get_or_insert(row);
        self.missing.push(missing);
    }

    fn requeue_after(&mut self, after: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(after, |sooner| sooner.min(after)));
    }

    fn asks_now(&self) -> bool {
        let now = |missing: &Missing<_>| matches!(missing, Missing::Answer { after, .. } if after.is_zero());
        self.missing.iter().any(now)
    }

    fn decision(self, otherwise: &'static Rule) -> PodDecision {
        Decision {
            missing: self.missing,
            notices: self.notices,
            requeue_after: self.requeue_after,
            ..Decision::nothing(self.row.unwrap_or(otherwise))
        }
    }
}

/// Rules 2 to 11 and 16 to 19 for a pod that is, or would be, held: the first rule whose evidence is complete.
fn weigh(pod: &PodView, mass_release: MassRelease, now: Timestamp) -> Verdict {
    let mut reasons = Reasons::default();
    let not_awaited = admin_asked(pod)
        .or_else(|| namespace_terminating(pod, &mut reasons))
        .or_else(|| unselected(pod, mass_release, &mut reasons))
        .or_else(|| owner::gone_or_deleting(pod, &mut reasons));
    if let Some((row, evidence)) = not_awaited {
        return Verdict::Release(row, evidence);
    }
    if capture::is_due(pod, now, &mut reasons) {
        return Verdict::Record(Recorded::IfFinal);
    }
    let found = owner::missing(pod)
        .or_else(|| owner::consumed(pod, &mut reasons))
        .or_else(|| status::node_fulfilled(pod, &mut reasons))
        .or_else(|| capture::captured(pod))
        .or_else(|| unread::never_held(pod))
        .or_else(|| unread::ended_by_deletion(pod, now, &mut reasons))
        .or_else(|| unread::node_lost(pod, &mut reasons))
        .or_else(|| unread::earlier_run(pod))
        .or_else(|| release_after(pod, now));
    match found {
        Some((_, evidence)) if capture::comes_first(pod, &evidence) => {
            Verdict::Record(Recorded::AsItIs)
        }
        Some((row, evidence)) => Verdict::Release(row, evidence),
        None => Verdict::Keep(reasons),
    }
}

type Found = Option<(&'static Rule, Evidence)>;

/// Rule 2.
fn admin_asked(pod: &PodView) -> Found {
    let reach = match pod.recreated {
        true => Reach::OwnHold,
        false => Reach::AllHolds,
    };
    pod.admin_asked
        .then_some((row::ADMIN_ASKED, Evidence::AdminAsked { reach }))
}

/// Rule 3.
fn namespace_terminating(pod: &PodView, reasons: &mut Reasons) -> Found {
    if let Some(proof) = pod.namespace.deletion(pod.first_seen) {
        return Some((
            row::NAMESPACE_TERMINATING,
            Evidence::NamespaceTerminating(proof),
        ));
    }
    if pod.namespace.cached.as_ref()?.is_deleting() {
        reasons.add(row::NAMESPACE_TERMINATING, ask_namespace(pod));
    }
    None
}

/// Rule 4.
fn unselected(pod: &PodView, mass_release: MassRelease, reasons: &mut Reasons) -> Found {
    let evidence = match &pod.selection {
        Selection::By { .. } => return None,
        Selection::None => NotSelected::ByConfiguration,
        Selection::Ignored => prove_ignored(pod, reasons)?,
    };
    match mass_release {
        MassRelease::Within => Some((row::UNSELECTED, Evidence::Unselected(evidence))),
        MassRelease::Exceeded {
            unselected,
            held,
            scope,
        } => {
            let message = format!(
                "no profile selects this pod any more, and the same is true of {unselected} of {held} held pods {}: \
                 kept, because that many at once look like a mistyped selector",
                scope.message()
            );
            reasons.add(row::UNSELECTED, Missing::Event(message.into()));
            None
        }
    }
}

fn prove_ignored(pod: &PodView, reasons: &mut Reasons) -> Option<NotSelected> {
    let proof = pod.namespace.ignored(pod.first_seen);
    if proof.is_none() {
        reasons.add(row::UNSELECTED, ask_namespace(pod));
    }
    proof.map(NotSelected::ByNamespace)
}

/// How long until `releaseAfter` ends. By the wall clock, but a jump of it ends nothing and delays nothing beyond the
/// limit: the pod waits at most `limit` after this process first saw it wait, or after the end of its grace period, and at
/// least as long as the process's own clock shows (L9).
fn until_limit(pod: &PodView, limit: Duration, waits: Duration) -> Duration {
    let Some(Watched { waited, before }) = pod.watched else {
        return limit.saturating_sub(waits);
    };
    let shown = waits.min(before + waited);
    let left = limit.saturating_sub(shown);
    let settles = limit.min(SETTLE).saturating_sub(waited);
    left.max(settles).min(limit.saturating_sub(waited))
}

/// The profile's `releaseAfter`, off by default.
fn release_after(pod: &PodView, now: Timestamp) -> Found {
    let Selection::By { profile, .. } = &pod.selection else {
        return None;
    };
    let limit = profile.release_after?;
    let left = until_limit(pod, limit, elapsed(pod.deleting?, now));
    left.is_zero()
        .then_some((row::KEEP, Evidence::ReleaseAfter))
}

fn ask_namespace(pod: &PodView) -> Missing<PodQuery> {
    Missing::Answer {
        query: PodQuery::Namespace(pod.namespace.query.clone()),
        after: pod.namespace.next_read(pod.first_seen, RECHECK),
    }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

fn waits_for(pod: &PodView) -> Cow<'static, str> {
    if let Some(why) = capture::refused(pod) {
        return why.into();
    }
    match (&pod.selection, pod.ended) {
        (Selection::By { profile, .. }, true) => {
            let reader = pod.deciding_profiles.first().map(|judge| &judge.profile);
            let profile = reader.unwrap_or(profile);
            let waits = format!(
                "the consumer has to read the result (profile {})",
                profile.name
            );
            match status::message(pod, profile) {
                Some(says) => format!("{waits}: {says}").into(),
                None => waits.into(),
            }
        }
        (Selection::By { .. }, false) => {
            "the pod has to end, and its consumer has to read its result".into()
        }
        (Selection::None | Selection::Ignored, _) => "the pod is not selected".into(),
    }
}

#[cfg(test)]
mod tests;
