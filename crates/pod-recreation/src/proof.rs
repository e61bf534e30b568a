//! The proof that no container of a pod ever ran (invariant RAN-ONCE).
//!
//! The kubelet writes a rejection as a new status without container statuses, and after a restart on a changed node
//! it also rejects pods that were running. So missing container statuses prove nothing. The two cases differ in
//! `status.startTime`, which the kubelet keeps across restarts: if a pod is rejected at its first admission, it is
//! the time of the rejection.
//!
//! The start time is by the clock of the node and the write by that of the API server, so the start time is
//! corrected first.
//!
//! An overloaded kubelet writes a rejection late: times of more than a minute were measured. If every version of the pod was
//! seen and none has a report of its kubelet, the start time comes with the rejection itself, and the write may be late. A
//! kubelet that had restarted could know an earlier start time only from such a report.
//!
//! A kubelet without connection to the API server may run the pod without reporting it, restart, and reject the pod
//! as if it were new. So there is no proof for a pod that was bound for a long time before its kubelet reported
//! anything but the rejection.
//!
//! The rules of [`row`](crate::row) require it before a pod is re-created.

use belayer_core::slim::{Failure, Phase, Pod};
use belayer_holds::names::POD_RECREATION_HOLD;
use jiff::{SignedDuration, Timestamp};

/// Longest time between `status.startTime` and the write of a rejection at first admission.
const MAX_START_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// The same for a pod that was first seen rejected, without its hold or with one that may have been added after the rejection.
/// Only its start time shows that it did not run; a kubelet that starts a pod, restarts and rejects it needs longer.
const MAX_START_DELAY_UNHELD: SignedDuration = SignedDuration::from_secs(2);

/// The same for [`ATTACH_LIMIT`] if every version of the pod was seen. The kubelet waits two minutes and three seconds for
/// the volumes of a pod before it rejects it, and may wait twice. It starts no container before. The limit is shorter
/// than the six minutes after which the volumes of a node that does not respond are detached.
const MAX_ATTACH_DELAY: SignedDuration = SignedDuration::from_secs(300);

/// The reason of a pod whose volumes cannot be attached because the node has too many.
const ATTACH_LIMIT: &str = "VolumeAttachmentLimitExceeded";

/// How much later than the write of its rejection a pod may seem to have started: the times have a resolution of a
/// second.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Longest time between the binding of a pod and its kubelet's first report. After that the kubelet may have run the
/// pod without connection to the API server.
const MAX_REPORT_DELAY: SignedDuration = SignedDuration::from_secs(120);

/// The proof that no container of a pod ever ran. Only [`NeverRan::prove`] builds it. The rules of
/// [`row`](crate::row) require it before a pod is re-created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverRan(());

/// Why there is no proof. The rules of [`row`](crate::row) require it before a pod is re-created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MayHaveRun {
    /// It does not have the hold, which is released once it starts, and it was seen before it was rejected.
    #[error(
        "it does not have the finalizer belayer.dev/pod-recreation, so it may have started before"
    )]
    NotHeld,
    /// A container status shows that a container has started.
    #[error("a container of it has started")]
    ContainerStarted,
    /// It has an address: its sandbox was up.
    #[error("it has an IP address, so its sandbox has been started")]
    HasAddress,
    /// The kubelet accepted it long before it rejected it.
    #[error("the kubelet accepted it long before it rejected it")]
    StartedEarlier,
    /// A container of it has ended, and it is unknown whether it had started.
    #[error("a container of it has ended, and may have started before")]
    ContainerEnded,
    /// An earlier version of it showed that it had started.
    #[error("an earlier version of it showed that it had started")]
    SeenStarted,
    /// The kubelet accepted it after it had rejected it: the times do not fit.
    #[error(
        "its start time is later than the write of its rejection, so the clock of its node differs too much"
    )]
    StartedLater,
    /// It has a start time that cannot be represented (T9).
    #[error("the time at which its kubelet accepted it cannot be represented")]
    UnknownStart,
    /// It was bound for a long time before its kubelet reported anything about it.
    #[error(
        "its kubelet reported nothing about it for more than two minutes after it was bound, and may have run it \
         without connection to the API server"
    )]
    NotReportedInTime,
    /// It is bound or has a start time, and no managed field shows when the status was written.
    #[error("the time at which its rejection was written is unknown")]
    UnknownWrite,
}

impl MayHaveRun {
    /// Whether this proves that it ran, or that a container of it was created. Otherwise only the proof is missing.
    ///
    /// Once a record has its rejection, only this counts: a pod that has failed is never started again, but its
    /// kubelet, after a restart or a change of the pod, may write its status anew.
    pub fn is_start(self) -> bool {
        matches!(
            self,
            Self::ContainerStarted | Self::HasAddress | Self::SeenStarted
        )
    }
}

/// Whether this process saw the pod before its rejection. The rules of [`row`](crate::row) require
/// it before a pod is re-created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSeen {
    /// It had already been rejected when it was first seen.
    Rejected,
    /// It was seen before its rejection, and so was every version since. None showed that it ran: a hold would prove
    /// no more.
    EarlierUnbroken,
    /// It was seen before its rejection and versions may be missing, or that is unknown.
    Earlier,
}

impl FirstSeen {
    /// How the informer's store saw this pod, which has failed.
    pub fn of(pod: &Pod) -> Self {
        let unstarted = pod.unstarted.as_ref();
        if unstarted.is_some_and(|of| !of.seen_before_failure) {
            Self::Rejected
        } else if pod.is_known_unstarted() {
            Self::EarlierUnbroken
        } else {
            Self::Earlier
        }
    }
}

impl NeverRan {
    /// The proof for `pod`, which has failed.
    ///
    /// # Errors
    ///
    /// Why there is no proof.
    pub fn prove(pod: &Pod, first_seen: FirstSeen) -> Result<Self, MayHaveRun> {
        if pod.started || pod.phase != Phase::Failed {
            return Err(MayHaveRun::ContainerStarted);
        }
        let failure = pod.failure.as_deref();
        if failure.is_some_and(|failure| failure.has_container_id) {
            return Err(MayHaveRun::ContainerStarted);
        }
        if pod.has_ip {
            return Err(MayHaveRun::HasAddress);
        }
        if pod.unstarted.is_none() {
            return Err(MayHaveRun::SeenStarted);
        }
        let longest = match (pod.meta.has_finalizer(POD_RECREATION_HOLD), first_seen) {
            (_, FirstSeen::EarlierUnbroken) if is_attach_limit(pod) => MAX_ATTACH_DELAY,
            (_, FirstSeen::EarlierUnbroken) if is_first_report(pod) => MAX_REPORT_DELAY,
            (true, FirstSeen::Rejected) if !is_held_since_before(pod) => MAX_START_DELAY_UNHELD,
            (true, _) | (false, FirstSeen::EarlierUnbroken) => MAX_START_DELAY,
            (false, FirstSeen::Rejected) => MAX_START_DELAY_UNHELD,
            (false, FirstSeen::Earlier) => return Err(MayHaveRun::NotHeld),
        };
        // The kubelet writes such states also for containers of a rejected pod that is being deleted, and of one whose
        // volumes it could not attach once it has unmounted the others (such as the token): exit code 137, without a
        // container ID. Every earlier version of the latter was seen.
        let is_made_up = pod.meta.is_deleting()
            || first_seen == FirstSeen::EarlierUnbroken && is_attach_limit(pod);
        if failure.is_some_and(|failure| failure.has_container) && !is_made_up {
            return Err(MayHaveRun::ContainerEnded);
        }
        reported_in_time(pod)?;
        let start = failure.and_then(|times| times.start_time);
        match (start, failure.and_then(|times| times.status_written)) {
            (None, _) => Ok(Self(())),
            (Some(start), _) if start == Timestamp::MIN => Err(MayHaveRun::UnknownStart),
            (Some(_), None) => Err(MayHaveRun::UnknownWrite),
            (Some(start), Some(written)) => match written.duration_since(start) {
                delay if delay < -CLOCK_TOLERANCE => Err(MayHaveRun::StartedLater),
                delay if delay > longest => Err(MayHaveRun::StartedEarlier),
                _ => Ok(Self(())),
            },
        }
    }
}

/// Whether the hold is known to be older than the rejection. Belayer also adds it to a pod that it finds rejected: such a hold
/// does not show that the pod had not started.
fn is_held_since_before(pod: &Pod) -> bool {
    let failure = pod.failure.as_deref();
    let times = failure.and_then(|failure| failure.finalizers_written.zip(failure.status_written));
    times.is_some_and(|(held, rejected)| held < rejected)
}

/// Whether the kubelet accepted the pod, reported that, and then could not attach its volumes.
fn is_attach_limit(pod: &Pod) -> bool {
    let unstarted = pod.unstarted.as_deref();
    pod.reason.as_deref() == Some(ATTACH_LIMIT)
        && unstarted.is_some_and(|unstarted| unstarted.kubelet_reported)
}

/// Whether the rejection is the first that its kubelet reported. A kubelet that runs out of attachments accepted the pod
/// before.
fn is_first_report(pod: &Pod) -> bool {
    let unstarted = pod.unstarted.as_deref();
    pod.reason.as_deref() != Some(ATTACH_LIMIT)
        && unstarted.is_some_and(|unstarted| !unstarted.kubelet_reported)
}

/// Requires that the kubelet reported the pod within [`MAX_REPORT_DELAY`] of its binding.
fn reported_in_time(pod: &Pod) -> Result<(), MayHaveRun> {
    let unstarted = pod.unstarted.as_deref();
    if pod.node_name.is_none() || unstarted.is_some_and(|unstarted| unstarted.kubelet_reported) {
        return Ok(());
    }
    let failure = pod.failure.as_deref();
    let of_failure = |time: fn(&Failure) -> Option<_>| failure.and_then(time);
    // If the pod was first seen rejected, the time of its binding is usually unknown.
    let bound = unstarted.and_then(|unstarted| unstarted.scheduled);
    let bound = bound.or(of_failure(|failure| failure.created));
    match (bound, of_failure(|failure| failure.status_written)) {
        (_, None) => Err(MayHaveRun::UnknownWrite),
        (Some(bound), Some(written)) if written.duration_since(bound) <= MAX_REPORT_DELAY => Ok(()),
        (_, Some(_)) => Err(MayHaveRun::NotReportedInTime),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
    use belayer_core::slim::{Continuity, Failure, ObjectMeta, Unstarted};
    use rstest::rstest;

    use super::*;

    fn rejected() -> Pod {
        let meta = ObjectMeta {
            finalizers: Box::from([Arc::from(POD_RECREATION_HOLD)]),
            ..ObjectMeta::new(
                ObjectKey::new("shop", "web"),
                Uid::new("u"),
                ResourceVersion::new(1),
            )
        };
        Pod {
            phase: Phase::Failed,
            ..Pod::new(meta)
        }
    }

    fn times(start: i64, written: Option<i64>) -> Pod {
        let at = |second| Timestamp::from_second(second).unwrap();
        Pod {
            failure: Some(Box::new(Failure {
                start_time: Some(at(start)),
                status_written: written.map(at),
                ..Failure::default()
            })),
            ..rejected()
        }
    }

    /// A pod whose hold was added at this time at the latest.
    fn held_at(second: i64, mut pod: Pod) -> Pod {
        let at = Timestamp::from_second(second).unwrap();
        pod.failure.as_mut().unwrap().finalizers_written = Some(at);
        pod
    }

    fn accepted_at(start: Timestamp) -> Pod {
        let mut pod = times(100, Some(100));
        pod.failure.as_mut().unwrap().start_time = Some(start);
        pod
    }

    /// As after a client has removed its `managedFields`.
    fn bound_without_managed_fields() -> Pod {
        let mut pod = bound(1_001, Bound::Seen);
        pod.failure.as_mut().unwrap().status_written = None;
        pod
    }

    fn unheld() -> Pod {
        without_hold(rejected())
    }

    fn without_hold(mut pod: Pod) -> Pod {
        pod.meta.finalizers = Box::default();
        pod
    }

    /// A pod that was bound at 1000 and rejected at `written`.
    fn bound(written: i64, bound: Bound) -> Pod {
        let at = |second| Timestamp::from_second(second).unwrap();
        let scheduled = (bound != Bound::Unseen).then(|| at(1_000));
        let mut pod = times(written, Some(written));
        pod.node_name = Some("node-1".into());
        pod.failure.as_mut().unwrap().created = Some(at(1_000));
        pod.unstarted = Some(Box::new(Unstarted {
            scheduled,
            kubelet_reported: bound == Bound::Reported,
            ..Unstarted::default()
        }));
        pod
    }

    /// A pod whose volumes could not be attached: accepted at 1000, rejected at `written`.
    fn attaching(written: i64, bound_as: Bound) -> Pod {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut pod = without_hold(bound(written, bound_as));
        pod.reason = Some(ATTACH_LIMIT.into());
        pod.failure.as_mut().unwrap().start_time = Some(at(1_000));
        pod
    }

    /// The kubelet writes that a container ended, without its ID.
    fn ended(mut pod: Pod) -> Pod {
        pod.failure.as_mut().unwrap().has_container = true;
        pod
    }

    fn held_again(mut pod: Pod) -> Pod {
        pod.meta.finalizers = rejected().meta.finalizers;
        pod
    }

    /// A pod that was rejected at 1001; its kubelet wrote that at `written`.
    fn written_late(written: i64, bound_as: Bound) -> Pod {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut pod = bound(written, bound_as);
        pod.reason = Some("NodeAffinity".into());
        pod.failure.as_mut().unwrap().start_time = Some(at(1_001));
        pod
    }

    fn with_container(has_id: bool) -> Pod {
        let mut pod = times(100, Some(100));
        let failure = pod.failure.as_mut().unwrap();
        failure.has_container = true;
        failure.has_container_id = has_id;
        pod
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Bound {
        Seen,
        Unseen,
        Reported,
    }

    #[rstest]
    #[case::without_times(rejected(), FirstSeen::Earlier, Ok(()))]
    #[case::rejected_within_the_limit(times(100, Some(110)), FirstSeen::Earlier, Ok(()))]
    #[case::clocks_differ_a_little(times(102, Some(100)), FirstSeen::Earlier, Ok(()))]
    #[case::r8_clocks_differ(
        times(103, Some(100)),
        FirstSeen::Earlier,
        Err(MayHaveRun::StartedLater)
    )]
    #[case::accepted_long_before(
        times(100, Some(111)),
        FirstSeen::Earlier,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::written_at_an_unknown_time(
        times(100, None),
        FirstSeen::Earlier,
        Err(MayHaveRun::UnknownWrite)
    )]
    #[case::bound_and_written_at_an_unknown_time(
        bound_without_managed_fields(),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::UnknownWrite)
    )]
    #[case::t9_accepted_at_a_time_that_cannot_be_represented(
        accepted_at(Timestamp::MIN),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::UnknownStart)
    )]
    #[case::t9_accepted_at_the_end_of_time(
        accepted_at(Timestamp::MAX),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::StartedLater)
    )]
    #[case::without_its_hold(unheld(), FirstSeen::Earlier, Err(MayHaveRun::NotHeld))]
    #[case::first_seen_rejected(unheld(), FirstSeen::Rejected, Ok(()))]
    #[case::r1_first_seen_rejected_within_the_limit(without_hold(times(100, Some(102))), FirstSeen::Rejected, Ok(()))]
    #[case::r1_first_seen_rejected_after_it_may_have_run(
        without_hold(times(100, Some(103))),
        FirstSeen::Rejected,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r1_held_after_its_rejection(
        held_at(200, times(100, Some(107))),
        FirstSeen::Rejected,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r1_held_in_the_second_of_its_rejection(
        held_at(107, times(100, Some(107))),
        FirstSeen::Rejected,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r1_held_at_an_unknown_time(
        times(100, Some(107)),
        FirstSeen::Rejected,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r1_held_after_its_rejection_and_rejected_within_the_limit(held_at(200, times(100, Some(102))), FirstSeen::Rejected, Ok(()))]
    #[case::r1_held_before_its_rejection(held_at(106, times(100, Some(107))), FirstSeen::Rejected, Ok(()))]
    #[case::r1_observed_without_a_gap(unheld(), FirstSeen::EarlierUnbroken, Ok(()))]
    #[case::r1_seen_to_start_before(Pod { unstarted: None, ..unheld() }, FirstSeen::EarlierUnbroken, Err(MayHaveRun::SeenStarted))]
    #[case::r1_seen_to_start_before_though_held(Pod { unstarted: None, ..rejected() }, FirstSeen::Earlier, Err(MayHaveRun::SeenStarted))]
    #[case::r1_rejected_soon_after_it_was_bound(bound(1_120, Bound::Seen), FirstSeen::EarlierUnbroken, Ok(()))]
    #[case::r1_rejected_long_after(
        bound(1_121, Bound::Seen),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::NotReportedInTime)
    )]
    #[case::r1_rejected_long_after_though_held(
        bound(1_121, Bound::Seen),
        FirstSeen::Earlier,
        Err(MayHaveRun::NotReportedInTime)
    )]
    #[case::r1_its_kubelet_had_reported_it(bound(1_121, Bound::Reported), FirstSeen::EarlierUnbroken, Ok(()))]
    #[case::r1_old_and_first_seen_rejected(
        bound(1_121, Bound::Unseen),
        FirstSeen::Rejected,
        Err(MayHaveRun::NotReportedInTime)
    )]
    #[case::r1_young_and_first_seen_rejected(bound(1_030, Bound::Unseen), FirstSeen::Rejected, Ok(()))]
    #[case::r4_its_volumes_were_not_attached(attaching(1_123, Bound::Reported), FirstSeen::EarlierUnbroken, Ok(()))]
    #[case::r4_its_other_volumes_were_unmounted(
        ended(attaching(1_123, Bound::Reported)),
        FirstSeen::EarlierUnbroken,
        Ok(())
    )]
    #[case::r4_an_end_after_which_versions_may_be_missing(
        held_again(ended(attaching(1_005, Bound::Reported))),
        FirstSeen::Earlier,
        Err(MayHaveRun::ContainerEnded)
    )]
    #[case::r4_an_end_of_another_reason(
        Pod { reason: Some("NodeAffinity".into()), ..ended(attaching(1_005, Bound::Reported)) },
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::ContainerEnded)
    )]
    #[case::r4_versions_may_be_missing(
        attaching(1_123, Bound::Reported),
        FirstSeen::Rejected,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r4_its_kubelet_had_not_reported_it(
        attaching(1_100, Bound::Seen),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r4_its_sandbox_was_ready(
        Pod { unstarted: None, ..attaching(1_123, Bound::Reported) },
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::SeenStarted)
    )]
    #[case::r4_after_its_volumes_may_have_been_detached(
        attaching(1_301, Bound::Reported),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r4_another_reason(
        Pod { reason: Some("NodeAffinity".into()), ..attaching(1_123, Bound::Reported) },
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r13_an_overloaded_kubelet_writes_late(written_late(1_071, Bound::Seen), FirstSeen::EarlierUnbroken, Ok(()))]
    #[case::r13_without_its_hold(without_hold(written_late(1_071, Bound::Seen)), FirstSeen::EarlierUnbroken, Ok(()))]
    #[case::r13_versions_may_be_missing(
        written_late(1_071, Bound::Seen),
        FirstSeen::Earlier,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r13_its_kubelet_had_accepted_it(
        written_late(1_071, Bound::Reported),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r13_written_too_late(
        written_late(1_121, Bound::Seen),
        FirstSeen::EarlierUnbroken,
        Err(MayHaveRun::NotReportedInTime)
    )]
    #[case::a_container_started(Pod { started: true, ..rejected() }, FirstSeen::Earlier, Err(MayHaveRun::ContainerStarted))]
    #[case::a_container_has_ended(
        with_container(false),
        FirstSeen::Earlier,
        Err(MayHaveRun::ContainerEnded)
    )]
    #[case::a_container_has_an_id(
        with_container(true),
        FirstSeen::Earlier,
        Err(MayHaveRun::ContainerStarted)
    )]
    #[case::it_has_an_address(Pod { has_ip: true, ..rejected() }, FirstSeen::Rejected, Err(MayHaveRun::HasAddress))]
    #[case::it_has_not_failed(Pod { phase: Phase::Running, ..rejected() }, FirstSeen::Earlier, Err(MayHaveRun::ContainerStarted))]
    fn never_ran(
        #[case] pod: Pod,
        #[case] first_seen: FirstSeen,
        #[case] expected: Result<(), MayHaveRun>,
    ) {
        assert_eq!(NeverRan::prove(&pod, first_seen).map(drop), expected);
    }

    #[rstest]
    #[case::seen_rejected(false, Continuity::Unbroken, FirstSeen::Rejected)]
    #[case::seen_pending(true, Continuity::Unbroken, FirstSeen::EarlierUnbroken)]
    #[case::seen_pending_and_missed_since(true, Continuity::Broken, FirstSeen::Earlier)]
    fn how_a_pod_was_first_seen(
        #[case] seen_before_failure: bool,
        #[case] continuity: Continuity,
        #[case] expected: FirstSeen,
    ) {
        let mut pod = rejected();
        pod.unstarted = Some(Box::new(Unstarted {
            continuity,
            seen_before_failure,
            ..Unstarted::default()
        }));
        assert_eq!(FirstSeen::of(&pod), expected);
        pod.unstarted = None;
        assert_eq!(FirstSeen::of(&pod), FirstSeen::Earlier);
    }
}
