//! The shares of the machine: how much runs in parallel.

use tokio::sync::watch;

use super::scenario::Load;

/// The shares that are not taken.
pub(super) struct Machine {
    free: watch::Sender<u32>,
}

/// Shares of a [`Machine`], until it is dropped.
#[must_use]
pub(super) struct Share<'a> {
    machine: &'a Machine,
    shares: u32,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            free: watch::Sender::new(Load::ALL),
        }
    }

    /// These shares, if they are free now.
    pub(super) fn try_take(&self, shares: u32) -> Option<Share<'_>> {
        let take = |free: &mut u32| {
            let left = free.checked_sub(shares);
            if let Some(left) = left {
                *free = left;
            }
            left.is_some()
        };
        let taken = self.free.send_if_modified(take);
        taken.then(|| Share {
            machine: self,
            shares,
        })
    }

    /// What `choose` returns, which is asked again whenever shares become free or are taken, until it is not `None`.
    pub(super) async fn wait_for<T>(&self, mut choose: impl FnMut() -> Option<T>) -> T {
        let mut free = self.free.subscribe();
        loop {
            free.mark_unchanged();
            if let Some(chosen) = choose() {
                return chosen;
            }
            // It fails only after the machine was dropped.
            let _ = free.changed().await;
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.machine.free.send_modify(|free| *free += self.shares);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn shares_are_free_again_when_they_are_dropped() {
        let machine = Machine::new();
        let most = machine.try_take(Load::ALL - 1);
        assert!(most.is_some());
        assert!(machine.try_take(2).is_none());
        let last = machine.try_take(1);
        assert!(last.is_some());
        drop(most);
        assert!(machine.try_take(2).is_some());
    }

    #[test]
    fn a_waiting_line_chooses_again_when_shares_become_free() {
        let machine = Machine::new();
        let all = machine.try_take(Load::ALL);
        let mut waits = Box::pin(machine.wait_for(|| machine.try_take(1)));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(all);
        assert!(waits.as_mut().now_or_never().is_some());
    }
}
