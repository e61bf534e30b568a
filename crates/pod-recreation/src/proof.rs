//! The proof that no container of a pod ever ran (invariant RAN-ONCE).
//!
//! The kubelet writes a rejection as a fresh status without container statuses, and after a restart on
//! a changed node it rejects pods that were running. So absent container statuses prove nothing. What
//! tells them apart is the time of the first start, which the kubelet keeps across restarts: where a pod
//! is rejected at its first admission it is the moment of the rejection itself.
//!
//! None of this helps if a kubelet was cut off from the API server: it may have run the pod without reporting
//! it, restarted, and rejected the pod as if it had just come. So there is no proof for a pod that was bound for
//! a long time before its kubelet reported anything but the rejection.

use belayer_core::slim::{Failure, Phase, Pod};
use belayer_holds::names::POD_RECREATION_HOLD;
use jiff::SignedDuration;

/// A rejection at first admission is written within this time of the start.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(10);

/// The same for a pod without its hold that was first seen rejected. Nothing but its start time says that
/// it did not run, and a kubelet that started it, ended, and rejected it after its restart needs longer.
const AT_ONCE_UNSEEN: SignedDuration = SignedDuration::from_secs(2);

/// A kubelet that reports nothing about a pod for longer than this after it was bound may be cut off.
const UNHEARD_OF: SignedDuration = SignedDuration::from_secs(120);

/// Nothing of this pod ever ran. Only [`NeverRan::prove`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverRan(());

/// What stands against the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MayHaveRun {
    /// Its hold, which is released once it starts, is not on it, and it was seen before it was rejected.
    #[error("its hold is not on it, so it may have started before")]
    NotHeld,
    /// A container status says so.
    #[error("a container of it has started")]
    ContainerStarted,
    /// It has an address: its sandbox was up.
    #[error("it has an IP address")]
    HasAddress,
    /// It was taken by the kubelet long before it was rejected.
    #[error("the kubelet took it long before it rejected it")]
    StartedEarlier,
    /// An earlier version of it showed that it ran.
    #[error("it was seen to have started before")]
    SeenStarted,
    /// Its kubelet had it for a long time before it reported anything about it.
    #[error(
        "its kubelet reported nothing about it for more than two minutes after it was bound, and may have run it \
         while it was cut off from the API server"
    )]
    UnheardOf,
    /// It has a start time, and nobody knows when the status was written.
    #[error("nobody knows when its rejection was written")]
    UnknownWrite,
}

/// Whether the pod is known to this process from before its rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSight {
    /// When it was first seen it had been rejected already.
    Rejected,
    /// It was seen before it was rejected, and every version since: none showed that it ran. The hold would
    /// prove no more.
    Throughout,
    /// It was seen before and versions may have been missed, or that is not known.
    Earlier,
}

impl NeverRan {
    /// The proof, if `pod`, which has failed, gives it.
    ///
    /// # Errors
    ///
    /// What stands against it.
    pub fn prove(pod: &Pod, sight: FirstSight) -> Result<Self, MayHaveRun> {
        let at_once = match (pod.meta.has_finalizer(POD_RECREATION_HOLD), sight) {
            (true, _) | (false, FirstSight::Throughout) => AT_ONCE,
            (false, FirstSight::Rejected) => AT_ONCE_UNSEEN,
            (false, FirstSight::Earlier) => return Err(MayHaveRun::NotHeld),
        };
        if pod.started || pod.phase != Phase::Failed {
            return Err(MayHaveRun::ContainerStarted);
        }
        if pod.has_ip {
            return Err(MayHaveRun::HasAddress);
        }
        if pod.unstarted.is_none() {
            return Err(MayHaveRun::SeenStarted);
        }
        if !is_heard_of(pod) {
            return Err(MayHaveRun::UnheardOf);
        }
        let times = pod.failure.as_ref();
        let start = times.and_then(|times| times.start_time);
        match (start, times.and_then(|times| times.status_written)) {
            (None, _) => Ok(Self(())),
            (Some(_), None) => Err(MayHaveRun::UnknownWrite),
            (Some(start), Some(written)) if written.duration_since(start).abs() <= at_once => {
                Ok(Self(()))
            }
            (Some(_), Some(_)) => Err(MayHaveRun::StartedEarlier),
        }
    }
}

/// Whether the kubelet cannot have had the pod for a long time without reporting it.
fn is_heard_of(pod: &Pod) -> bool {
    let unstarted = pod.unstarted.as_deref();
    if pod.node_name.is_none() || unstarted.is_some_and(|unstarted| unstarted.kubelet_reported) {
        return true;
    }
    let failure = pod.failure.as_deref();
    let of_failure = |time: fn(&Failure) -> Option<_>| failure.and_then(time);
    // If it was first seen rejected, the time of its binding is seldom known.
    let bound = unstarted.and_then(|unstarted| unstarted.scheduled);
    let bound = bound.or(of_failure(|failure| failure.created));
    match (bound, of_failure(|failure| failure.status_written)) {
        (Some(bound), Some(written)) => written.duration_since(bound) <= UNHEARD_OF,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
    use belayer_core::slim::{Failure, ObjectMeta, Unstarted};
    use jiff::Timestamp;
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

    fn unheld() -> Pod {
        without_hold(rejected())
    }

    fn without_hold(mut pod: Pod) -> Pod {
        pod.meta.finalizers = Box::default();
        pod
    }

    /// Bound at 1000 and rejected at this time, as the kubelet writes it.
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

    #[derive(Clone, Copy, PartialEq)]
    enum Bound {
        Seen,
        Unseen,
        Reported,
    }

    #[rstest]
    #[case::nothing_against_it(rejected(), FirstSight::Earlier, Ok(()))]
    #[case::rejected_at_once(times(100, Some(110)), FirstSight::Earlier, Ok(()))]
    #[case::clocks_differ_a_little(times(103, Some(100)), FirstSight::Earlier, Ok(()))]
    #[case::taken_long_before(
        times(100, Some(111)),
        FirstSight::Earlier,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::written_nobody_knows_when(
        times(100, None),
        FirstSight::Earlier,
        Err(MayHaveRun::UnknownWrite)
    )]
    #[case::without_its_hold(unheld(), FirstSight::Earlier, Err(MayHaveRun::NotHeld))]
    #[case::first_seen_rejected(unheld(), FirstSight::Rejected, Ok(()))]
    #[case::r1_first_seen_rejected_at_once(without_hold(times(100, Some(102))), FirstSight::Rejected, Ok(()))]
    #[case::r1_first_seen_rejected_after_it_may_have_run(
        without_hold(times(100, Some(103))),
        FirstSight::Rejected,
        Err(MayHaveRun::StartedEarlier)
    )]
    #[case::r1_observed_throughout(unheld(), FirstSight::Throughout, Ok(()))]
    #[case::r1_seen_to_start_before(Pod { unstarted: None, ..unheld() }, FirstSight::Throughout, Err(MayHaveRun::SeenStarted))]
    #[case::r1_seen_to_start_before_though_held(Pod { unstarted: None, ..rejected() }, FirstSight::Earlier, Err(MayHaveRun::SeenStarted))]
    #[case::r1_rejected_soon_after_it_was_bound(bound(1_120, Bound::Seen), FirstSight::Throughout, Ok(()))]
    #[case::r1_rejected_long_after(
        bound(1_121, Bound::Seen),
        FirstSight::Throughout,
        Err(MayHaveRun::UnheardOf)
    )]
    #[case::r1_rejected_long_after_though_held(
        bound(1_121, Bound::Seen),
        FirstSight::Earlier,
        Err(MayHaveRun::UnheardOf)
    )]
    #[case::r1_its_kubelet_had_reported_it(bound(1_121, Bound::Reported), FirstSight::Throughout, Ok(()))]
    #[case::r1_old_and_first_seen_rejected(
        bound(1_121, Bound::Unseen),
        FirstSight::Rejected,
        Err(MayHaveRun::UnheardOf)
    )]
    #[case::r1_young_and_first_seen_rejected(bound(1_030, Bound::Unseen), FirstSight::Rejected, Ok(()))]
    #[case::a_container_started(Pod { started: true, ..rejected() }, FirstSight::Earlier, Err(MayHaveRun::ContainerStarted))]
    #[case::it_has_an_address(Pod { has_ip: true, ..rejected() }, FirstSight::Rejected, Err(MayHaveRun::HasAddress))]
    #[case::it_has_not_failed(Pod { phase: Phase::Running, ..rejected() }, FirstSight::Earlier, Err(MayHaveRun::ContainerStarted))]
    fn never_ran(
        #[case] pod: Pod,
        #[case] sight: FirstSight,
        #[case] expected: Result<(), MayHaveRun>,
    ) {
        assert_eq!(NeverRan::prove(&pod, sight).map(drop), expected);
    }
}
