//! Assertions on recorded writes, which print a difference when they fail.
#![allow(clippy::panic, reason = "an assertion that fails panics")]

use std::fmt::Write as _;

use super::diff::diff;
use super::{Mark, Recorder, Write, WriteFilter};

/// How many lines of a long record a failed assertion prints.
const SHOWN: usize = 50;

impl Recorder {
    /// The writes that match, in the order in which the server handled them.
    pub fn matching(&self, filter: &WriteFilter) -> Vec<Write> {
        self.matching_since(Mark::default(), filter)
    }

    /// The writes that match, after a mark.
    pub fn matching_since(&self, mark: Mark, filter: &WriteFilter) -> Vec<Write> {
        let log = self.log.lock();
        let since = log.writes.get(mark.0..).unwrap_or_default();
        since
            .iter()
            .filter(|write| filter.matches(write))
            .cloned()
            .collect()
    }

    /// How many writes match.
    pub fn count_of(&self, filter: &WriteFilter) -> usize {
        let log = self.log.lock();
        log.writes.iter().filter(|w| filter.matches(w)).count()
    }

    /// Asserts that exactly these matching writes have happened since the mark, in this order.
    ///
    /// A write is one line, as in [`Write::summary`].
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
    /// When they differ: with the difference, `-` for expected, `+` for written.
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
                "recorded writes differ (- expected, + written):\n{}",
                diff(&expected, &found)
            );
        }
    }

    /// Asserts the number of matching writes.
    ///
    /// # Panics
    /// When the number differs: with the matching writes.
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

    /// Asserts that there has been no matching write since the mark.
    ///
    /// ```
    /// # use belayer_sandbox::{Sandbox, WriteFilter};
    /// let sandbox = Sandbox::builder().seed(1).build();
    /// let mark = sandbox.recorder().mark();
    /// // ... the controller has nothing to do ...
    /// sandbox.recorder().assert_quiet_since(mark, &WriteFilter::any().by("my-controller"));
    /// ```
    ///
    /// # Panics
    /// When there are any: with those writes.
    #[track_caller]
    pub fn assert_quiet_since(&self, mark: Mark, filter: &WriteFilter) {
        let found = self.matching_since(mark, filter);
        if !found.is_empty() {
            panic!(
                "expected no writes, found {}:\n{}",
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
