//! How much the clocks of nodes differ from that of the API server.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::slim::Failure;
use hashbrown::HashMap;
use jiff::SignedDuration;
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

/// How much the clock of each node is ahead, and when that was read; `None` if the node does not show it.
#[derive(Debug, Default)]
pub(super) struct Clocks(HashMap<Arc<str>, (Option<SignedDuration>, Instant)>);

impl Clocks {
    /// Whether the node was read not long ago.
    pub(super) fn knows(&self, node: &str) -> bool {
        self.0.get(node).is_some_and(|(ahead, read)| {
            let differs = ahead.is_some_and(|ahead| !ahead.is_zero());
            let valid_for = if differs {
                VALID_FOR_DIFFERENCE
            } else {
                VALID_FOR
            };
            read.elapsed() < valid_for
        })
    }

    pub(super) fn note(&mut self, node: &Arc<str>, ahead: Option<SignedDuration>) {
        if self.0.len() > CLEANUP_ABOVE {
            self.0.retain(|_, (_, read)| read.elapsed() < VALID_FOR);
        }
        let ahead = ahead.map(|ahead| {
            if (-LATE_RENEWAL..=TOLERANCE).contains(&ahead) {
                SignedDuration::ZERO
            } else {
                ahead
            }
        });
        self.0.insert(Arc::clone(node), (ahead, Instant::now()));
    }

    /// Converts the kubelet's time in a rejection to the clock of the API server. Before the node was read, a start after
    /// the write counts as one at the write, and so does any start if the node will be read.
    pub(super) fn correct(&self, node: &str, failure: &mut Failure, reading: Reading) {
        let Some(start) = failure.start_time else {
            return;
        };
        let read = self.0.get(node);
        failure.start_time = match read.filter(|_| reading != Reading::Again || self.knows(node)) {
            Some((Some(ahead), _)) => start.checked_sub(*ahead).ok().or(Some(start)),
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
    #[case::with_the_hold(Reading::Again, 100)]
    #[case::seen_without_the_hold(Reading::Once, 160)]
    #[case::nothing_reads_the_node(Reading::Never, 160)]
    #[tokio::test(start_paused = true)]
    async fn r8_a_clock_that_was_set_since_is_read_again(
        #[case] reading: Reading,
        #[case] then: i64,
    ) {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let mut clocks = Clocks::default();
        clocks.note(&"node-1".into(), Some(SignedDuration::from_secs(-60)));
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
        clocks.note(&"node-1".into(), Some(SignedDuration::from_secs(ahead)));
        assert!(clocks.knows("node-1"));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(clocks.knows("node-1"), is_known);
        tokio::time::advance(VALID_FOR).await;
        assert!(!clocks.knows("node-1"));
    }
}
