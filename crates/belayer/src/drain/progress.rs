//! Progress of a drain: a bar on a terminal, otherwise a line per step.

use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::ProgressBar;

use belayer_core::object::Resource;
use belayer_drain::progress::Progress;
use belayer_inspect::reader::Trouble;

use crate::progress::{Lines, bar_on_stderr};
use crate::reach::Server;

/// Prints progress on standard error.
pub(super) struct ProgressPrinter {
    server: Server,
    bar: Option<ProgressBar>,
    objects: AtomicUsize,
    done: AtomicUsize,
    lines: Lines,
}

impl ProgressPrinter {
    pub(super) fn on_stderr(server: Server) -> Self {
        Self {
            server,
            bar: bar_on_stderr("{bar:24} {pos}/{len} {wide_msg}"),
            objects: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            lines: Lines::from_now(),
        }
    }

    /// Removes the bar before the report is printed.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn start(&self, len: usize, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(len).unwrap_or(u64::MAX));
            bar.set_position(0);
            bar.set_message(message);
        }
    }
}

impl Progress for ProgressPrinter {
    fn waiting(&self, trouble: Option<&Trouble>) {
        let report = || self.server.report(trouble);
        match &self.bar {
            Some(bar) => bar.suspend(report),
            None => report(),
        }
    }

    fn step(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| anstream::eprintln!("{text}")),
            None => anstream::eprintln!("{text}"),
        }
    }

    fn scanning(&self, kinds: usize) {
        self.start(kinds, "kinds".to_owned());
    }

    fn listed(&self, kind: &Resource, objects: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("kinds  {objects} objects  {kind}"));
        }
    }

    fn found(&self, objects: usize) {
        self.objects.store(objects, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        if objects > 0 {
            self.start(objects, "objects with holds".to_owned());
        }
    }

    fn handled(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
            return;
        }
        if self.lines.due() {
            let objects = self.objects.load(Ordering::Relaxed);
            anstream::eprintln!("{done} of {objects} objects");
        }
    }
}
