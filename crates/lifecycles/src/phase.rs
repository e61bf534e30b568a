//! Where a lifecycle stands.

use belayer_metrics::{config, lifecycle};

/// Which of its three kinds of work is done for an object. Phases go one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It is wanted: the world is brought to what it asks for, again at every change and resync.
    Sync,
    /// It must stop: nothing new is begun for it, what runs is brought to an end.
    Terminating,
    /// Nothing of it runs any more nor will; what it left behind is cleaned up.
    Terminated,
    /// Nothing is left to do.
    Finished,
}

impl Phase {
    /// The value of the label `lifecycle`; `None` for what is finished, which has no worker.
    #[must_use]
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Sync => Some(lifecycle::SYNC),
            Self::Terminating => Some(lifecycle::TERMINATING),
            Self::Terminated => Some(lifecycle::TERMINATED),
            Self::Finished => None,
        }
    }

    /// The phase that follows when this one's work is done.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Sync => Self::Terminating,
            Self::Terminating => Self::Terminated,
            Self::Terminated | Self::Finished => Self::Finished,
        }
    }
}

/// Whether the store still asks for the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Config {
    /// It is in the store, as far as is known.
    Desired,
    /// It vanished from the store while there was work to do, another object has its name, or it
    /// never was in the store and its remains were found.
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
    fn phases_go_one_way_and_end() {
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
    fn every_phase_with_a_worker_has_a_label_of_the_table() {
        let labels = [Phase::Sync, Phase::Terminating, Phase::Terminated].map(Phase::label);
        let known: Vec<_> = lifecycle::ALL.iter().copied().map(Some).collect();
        assert_eq!(labels.to_vec(), known);
        assert_eq!(Phase::Finished.label(), None);
    }
}
