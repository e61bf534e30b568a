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
    /// the write counts as one at the write, and so does any start if the node `will_be_read`: the steps that record a
    /// rejection read the node first.
    pub(super) fn correct(&self, node: &str, failure: &mut Failure, will_be_read: bool) {
        let Some(start) = failure.start_time else {
            return;
        };
        // Also what was read long ago: a pod that was refused by it must not be held again.
        failure.start_time = match self.0.get(node) {
            Some((Some(ahead), _)) => start.checked_sub(*ahead).ok().or(Some(start)),
            Some((None, _)) => Some(start),
            None if will_be_read => failure.status_written.or(Some(start)),
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
