//! How much the clocks of nodes differ from that of the API server.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::slim::Failure;
use hashbrown::HashMap;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Clocks drift: after this time a node is read again.
const VALID_FOR: Duration = Duration::from_secs(600);

/// The same for a clock that differs: the Lease has been renewed since, perhaps faster.
const VALID_FOR_DIFFERENCE: Duration = Duration::from_secs(10);

/// Above this number of entries, the invalid ones are removed.
const CLEANUP_ABOVE: usize = 1_000;

/// A smaller difference may come from the resolution of the times.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// The Lease of an overloaded node is stored later than it says, as if its clock were behind. A kubelet gives up a renewal
/// after this time.
const LATE_RENEWAL: SignedDuration = SignedDuration::from_secs(10);

/// How long before a rejection the Lease was renewed at most, if the node was read for that rejection: a kubelet renews it every ten
/// seconds, and a node whose Lease is older than forty seconds is not ready.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_secs(60);

/// Whether a node is read before anything is recorded about a rejected pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing reads the node.
    Never,
    /// The steps that record a rejection read the node, but a pod that was refused must not be held again only because
    /// time has passed.
    Once,
    /// They read the node again if that was long ago.
    Again,
}

/// What the Lease of a node shows about its clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeClock {
    /// How much it is ahead of that of the API server.
    pub(crate) ahead: SignedDuration,
    /// When the Lease was renewed, by the clock of the API server.
    pub(crate) renewed: Timestamp,
}

/// The clock of each node, and when it was read; `None` if the node does not show it.
#[derive(Debug, Default)]
pub(super) struct Clocks(HashMap<Arc<str>, (Option<NodeClock>, Instant)>);

impl Clocks {
    /// Whether the node was read not long ago.
    pub(super) fn knows(&self, node: &str) -> bool {
        self.0.get(node).is_some_and(|(clock, read)| {
            let differs = clock.is_some_and(|clock| !clock.ahead.is_zero());
            let valid_for = if differs {
                VALID_FOR_DIFFERENCE
            } else {
                VALID_FOR
            };
            read.elapsed() < valid_for
        })
    }

    pub(super) fn note(&mut self, node: &Arc<str>, clock: Option<NodeClock>) {
        if self.0.len() > CLEANUP_ABOVE {
            self.0.retain(|_, (_, read)| read.elapsed() < VALID_FOR);
        }
        let clock = clock.map(|clock| {
            let ahead = if (-LATE_RENEWAL..=TOLERANCE).contains(&clock.ahead) {
                SignedDuration::ZERO
            } else {
                clock.ahead
            };
            NodeClock { ahead, ..clock }
        });
        self.0.insert(Arc::clone(node), (clock, Instant::now()));
    }

    /// Converts the kubelet's time in a rejection to the clock of the API server. Before the node was read, a start after
    /// the write counts as one at the write, and so does any start if the node will be read. A reading that is no longer valid counts
    /// only for the rejection for which it was made.
    pub(super) fn correct(&self, node: &str, failure: &mut Failure, reading: Reading) {
        let Some(start) = failure.start_time else {
            return;
        };
        let was_made_for_it = |clock: &Option<NodeClock>| {
            let since =
                |clock: &NodeClock| Some(failure.status_written?.duration_since(clock.renewed));
            clock
                .as_ref()
                .and_then(since)
                .is_none_or(|since| since <= RENEWED_BEFORE)
        };
        let read = self.0.get(node).filter(|(clock, _)| {
            self.knows(node) || (reading != Reading::Again && was_made_for_it(clock))
        });
        failure.start_time = match read {
            Some((Some(clock), _)) => start.checked_sub(clock.ahead).ok().or(Some(start)),
            Some((None, _)) => Some(start),
            None if reading != Reading::Never => failure.status_written.or(Some(start)),
            None => Some(
                failure
                    .status_written
                    .map_or(start, |written| start.min(written)),
            ),
        };
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// A pod with the hold is judged by a clock that was read not long ago; a pod without it keeps its verdict.
    #[rstest]
    #[case::with_the_hold(Reading::Again, 95, 100)]
    #[case::seen_without_the_hold(Reading::Once, 95, 160)]
    #[case::nothing_reads_the_node(Reading::Never, 95, 160)]
    #[case::read_for_an_earlier_pod(Reading::Once, 39, 100)]
    #[case::read_for_an_earlier_pod_and_nothing_reads_it(Reading::Never, 39, 100)]
    #[tokio::test(start_paused = true)]
    async fn r8_a_clock_that_was_set_since_is_read_again(
        #[case] reading: Reading,
        #[case] renewed: i64,
        #[case] then: i64,
    ) {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let mut clocks = Clocks::default();
        let clock = NodeClock {
            ahead: SignedDuration::from_secs(-60),
            renewed: at(renewed),
        };
        clocks.note(&"node-1".into(), Some(clock));
        let starts = |clocks: &Clocks| {
            let mut failure = Failure {
                start_time: Some(at(100)),
                status_written: Some(at(100)),
                ..Failure::default()
            };
            clocks.correct("node-1", &mut failure, reading);
            failure.start_time
        };
        assert_eq!(starts(&clocks), Some(at(160)));
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!(starts(&clocks), Some(at(then)));
    }

    #[rstest]
    #[case::right(0, true)]
    #[case::a_renewal_may_be_late(-10, true)]
    #[case::ahead(60, false)]
    #[case::behind(-60, false)]
    #[tokio::test(start_paused = true)]
    async fn r8_a_clock_that_differs_is_read_again_soon(
        #[case] ahead: i64,
        #[case] is_known: bool,
    ) {
        let mut clocks = Clocks::default();
        let clock = NodeClock {
            ahead: SignedDuration::from_secs(ahead),
            renewed: jiff::Timestamp::UNIX_EPOCH,
        };
        clocks.note(&"node-1".into(), Some(clock));
        assert!(clocks.knows("node-1"));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(clocks.knows("node-1"), is_known);
        tokio::time::advance(VALID_FOR).await;
        assert!(!clocks.knows("node-1"));
    }
}
