//! Assertions on what was written, with a difference that can be read when they fail.
#![allow(clippy::panic, reason = "an assertion that fails panics")]

use std::fmt::Write as _;

use super::diff::diff;
use super::{Mark, Recorder, Write, WriteFilter};

/// Lines that a failed assertion shows of a long record.
const SHOWN: usize = 50;

impl Recorder {
    /// The writes of a set, in the order the server decided them.
    pub fn matching(&self, filter: &WriteFilter) -> Vec<Write> {
        self.matching_since(Mark::default(), filter)
    }

    /// Those of them after a mark.
    pub fn matching_since(&self, mark: Mark, filter: &WriteFilter) -> Vec<Write> {
        let log = self.log.lock();
        let since = log.writes.get(mark.0..).unwrap_or_default();
        since
            .iter()
            .filter(|write| filter.matches(write))
            .cloned()
            .collect()
    }

    /// How many writes a set has.
    pub fn count_of(&self, filter: &WriteFilter) -> usize {
        let log = self.log.lock();
        log.writes.iter().filter(|w| filter.matches(w)).count()
    }

    /// Exactly these writes of the set have happened since the mark, in this order.
    ///
    /// A write is one line, as [`Write::summary`] says it.
    ///
    /// ```
    /// # use belayer_sandbox::{Gvr, Mark, Sandbox, WriteFilter, WriteOptions};
    /// let sandbox = Sandbox::builder().seed(1).build();
    /// let settings = serde_json::json!({"metadata": {"name": "settings"}});
    /// let made = sandbox.cluster().create(
    ///     &"me".into(), &Gvr::CONFIGMAPS, Some("default"), settings, &WriteOptions::default());
    /// assert!(made.is_ok());
    /// let mine = WriteFilter::any().by("me");
    /// sandbox.recorder().assert_writes(
    ///     Mark::default(), &mine, ["me create v1/configmaps default/settings applied"]);
    /// ```
    ///
    /// # Panics
    /// When they are others: with the difference, `-` what was expected, `+` what was written.
    #[track_caller]
    pub fn assert_writes<'a>(
        &self,
        since: Mark,
        filter: &WriteFilter,
        expected: impl IntoIterator<Item = &'a str>,
    ) {
        let found: Vec<String> = summaries(&self.matching_since(since, filter));
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        if found != expected {
            panic!(
                "the record has other writes than expected (- expected, + written):\n{}",
                diff(&expected, &found)
            );
        }
    }

    /// The set has so many writes.
    ///
    /// # Panics
    /// When it has not: with those that it has.
    #[track_caller]
    pub fn assert_count(&self, filter: &WriteFilter, expected: usize) {
        let found = self.matching(filter);
        if found.len() != expected {
            panic!(
                "{} writes instead of {expected} match {filter:?}:\n{}",
                found.len(),
                listed(&found)
            );
        }
    }

    /// Nobody of the set has written since the mark.
    ///
    /// ```
    /// # use belayer_sandbox::{Sandbox, WriteFilter};
    /// let sandbox = Sandbox::builder().seed(1).build();
    /// let mark = sandbox.recorder().mark();
    /// // ... the controller is left alone ...
    /// sandbox.recorder().assert_quiet_since(mark, &WriteFilter::any().by("my-controller"));
    /// ```
    ///
    /// # Panics
    /// When somebody has: with what was written.
    #[track_caller]
    pub fn assert_quiet_since(&self, mark: Mark, filter: &WriteFilter) {
        let found = self.matching_since(mark, filter);
        if !found.is_empty() {
            panic!(
                "{} writes where none was expected:\n{}",
                found.len(),
                listed(&found)
            );
        }
    }
}

fn summaries(writes: &[Write]) -> Vec<String> {
    writes.iter().map(Write::summary).collect()
}

fn listed(writes: &[Write]) -> String {
    let mut text = String::new();
    for write in writes.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", write.summary());
    }
    if let Some(more) = writes.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "  ... and {more} more");
    }
    text
}
