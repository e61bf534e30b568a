//! How long keys waited and were worked on, until it is reported.
//!
//! All threads share a metrics recorder, so reporting each duration as it ends would cost more than
//! the queue itself. The durations are collected under the queue's lock, which costs nothing, and
//! reported in batches by one thread.

/// How many of either kind are collected before they are reported.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none(0, 0, None)]
    #[case::neither(BATCH - 1, BATCH - 1, None)]
    #[case::waited(BATCH, 0, Some((BATCH, 0)))]
    #[case::worked(1, BATCH, Some((1, BATCH)))]
    fn a_batch_is_complete_with_enough_of_either_kind(
        #[case] waited: usize,
        #[case] worked: usize,
        #[case] expected: Option<(usize, usize)>,
    ) {
        let mut durations = Durations {
            waited: vec![1; waited],
            worked: vec![1; worked],
        };
        let batch = durations.take_batch();
        assert_eq!(
            batch.map(|batch| (batch.waited.len(), batch.worked.len())),
            expected
        );
        let left = if expected.is_some() { 0 } else { waited };
        assert_eq!(durations.waited.len(), left);
    }
}
