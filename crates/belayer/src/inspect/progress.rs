//! Progress of a scan: a bar on a terminal, otherwise a line at intervals.

use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::ProgressBar;

use belayer_inspect::kinds::Kind;
use belayer_inspect::scan::Progress;

use crate::progress::{Lines, bar_on_stderr};

pub(super) struct ProgressPrinter {
    bar: Option<ProgressBar>,
    kinds: AtomicUsize,
    listed: AtomicUsize,
    lines: Lines,
}

impl ProgressPrinter {
    pub(super) fn on_stderr() -> Self {
        Self {
            bar: bar_on_stderr("{bar:24} {pos}/{len} kinds  {wide_msg}"),
            kinds: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
            lines: Lines::from_now(),
        }
    }

    /// Removes the bar before the report is printed.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for ProgressPrinter {
    fn kinds(&self, count: usize) {
        self.kinds.store(count, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }

    fn listed(&self, kind: &Kind, objects: u64) {
        let listed = self.listed.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(listed).unwrap_or(u64::MAX));
            bar.set_message(format!("{objects} objects  {}", kind.name()));
            return;
        }
        if self.lines.due() {
            let kinds = self.kinds.load(Ordering::Relaxed);
            anstream::eprintln!("listed {listed} of {kinds} kinds, {objects} objects");
        }
    }
}
