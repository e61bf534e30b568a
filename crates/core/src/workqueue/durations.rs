//! How long keys waited and were worked on, until it is reported.
//!
//! A recorder of metrics is shared by all threads, so that what is reported by each of them as it
//! happens costs more than the queue itself. They are noted under the queue's lock, where it costs
//! nothing, and reported some dozens at a time by one of them.

/// How many of either come together before they are reported.
const MANY: usize = 64;

/// Durations in nanoseconds, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// From when a key was ready until it was handed out.
    pub(super) waited: Vec<u64>,
    /// From then until the work on it ended.
    pub(super) worked: Vec<u64>,
}

impl Durations {
    /// All of them, once there are many.
    pub(super) fn take_many(&mut self) -> Option<Self> {
        let many = self.waited.len() >= MANY || self.worked.len() >= MANY;
        many.then(|| self.take())
    }

    pub(super) fn take(&mut self) -> Self {
        let room = || Vec::with_capacity(MANY);
        std::mem::replace(
            self,
            Self {
                waited: room(),
                worked: room(),
            },
        )
    }
}
