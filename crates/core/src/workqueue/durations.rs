//! How long keys waited and were worked on, until it is reported.
//!
//! All threads share a metrics recorder, so reporting each duration as it ends would cost more than
//! the queue itself. The durations are collected under the queue's lock, which costs nothing, and
//! reported in batches by one thread.

/// How is_full of either kind are collected before they are reported.
const BATCH: usize = 64;

/// Durations in nanoseconds, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// From when a key was ready until it was handed out.
    pub(super) waited: Vec<u64>,
    /// From when a key was handed out until the work on it ended.
    pub(super) worked: Vec<u64>,
}

impl Durations {
    /// Takes all durations if a batch is complete.
    pub(super) fn take_batch(&mut self) -> Option<Self> {
        let is_full = self.waited.len() >= BATCH || self.worked.len() >= BATCH;
        is_full.then(|| self.take())
    }

    pub(super) fn take(&mut self) -> Self {
        let empty = || Vec::with_capacity(BATCH);
        std::mem::replace(
            self,
            Self {
                waited: empty(),
                worked: empty(),
            },
        )
    }
}
