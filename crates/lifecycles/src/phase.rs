//! The phases of a lifecycle.

use belayer_metrics::{config, lifecycle};

/// The phase of the work for an object. Phases only go forward. Part of a [`View`](crate::View);
/// the methods of a [`Lifecycle`](crate::Lifecycle) are named after them. See
/// [`Slot`](crate::Slot), whose example drives the state table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The object is desired: it is synced, again at every change and resync.
    Sync,
    /// The object must stop: nothing new is begun for it, what runs is stopped.
    Terminating,
    /// Nothing of it runs any more; its files and other state are cleaned up.
    Terminated,
    /// Nothing is left to do.
    Finished,
}

impl Phase {
    /// The value of the label `lifecycle`; `None` for finished work, which has no worker.
    #[must_use]
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Sync => Some(lifecycle::SYNC),
            Self::Terminating => Some(lifecycle::TERMINATING),
            Self::Terminated => Some(lifecycle::TERMINATED),
            Self::Finished => None,
        }
    }

    /// The phase that follows when the work of this one is done.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Sync => Self::Terminating,
            Self::Terminating => Self::Terminated,
            Self::Terminated | Self::Finished => Self::Finished,
        }
    }
}

/// Whether the store contains the object. Part of a [`View`](crate::View), which
/// [`Lifecycles`](crate::Lifecycles) shows. See [`Slot`](crate::Slot), whose example drives the
/// state table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Config {
    /// The store contains it, as far as is known.
    Desired,
    /// It vanished from the store while there was work to do, another object has its name, or the
    /// store never contained it and its remains were found.
    Orphan,
}

impl Config {
    /// The value of the label `config`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Desired => config::DESIRED,
            Self::Orphan => config::ORPHAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_go_forward_and_end() {
        let mut phase = Phase::Sync;
        let mut seen = vec![phase];
        while phase != Phase::Finished {
            assert!(phase.next() > phase);
            phase = phase.next();
            seen.push(phase);
        }
        assert_eq!(seen.len(), 4);
        assert_eq!(phase.next(), Phase::Finished);
    }

    #[test]
    fn every_phase_with_a_worker_has_a_label() {
        let labels = [Phase::Sync, Phase::Terminating, Phase::Terminated].map(Phase::label);
        let known: Vec<_> = lifecycle::ALL.iter().copied().map(Some).collect();
        assert_eq!(labels.to_vec(), known);
        assert_eq!(Phase::Finished.label(), None);
    }
}
