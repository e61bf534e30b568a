//! Progress of a drain: a bar on a terminal, otherwise a line per step.

use std::sync::atomic::{AtomicBool, Ordering};

use belayer_core::object::Resource;
use belayer_drain::progress::Progress;
use belayer_inspect::reader::Trouble;

use crate::message::message;
use crate::progress::Meter;
use crate::reach::Server;

/// Prints progress on standard error.
pub(super) struct ProgressPrinter {
    server: Server,
    meter: Meter,
    is_draining: AtomicBool,
}

impl ProgressPrinter {
    pub(super) fn on_stderr(server: Server) -> Self {
        Self {
            server,
            meter: Meter::on_stderr("{bar:24} {pos}/{len} {wide_msg}"),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Removes the bar before the report is printed.
    pub(super) fn end(&self) {
        self.meter.bar.finish_and_clear();
    }

    /// Reports what a drain leaves that a signal ends.
    pub(super) fn interrupted(&self) {
        self.end();
        let text = if self.is_draining.load(Ordering::Relaxed) {
            "interrupted: Belayer stays in draining mode; run `belayer drain` again, or `belayer drain --resume`"
        } else {
            "interrupted"
        };
        anstream::eprintln!("{}", message(text));
    }

    fn start(&self, len: usize, message: &'static str) {
        let bar = &self.meter.bar;
        bar.set_length(u64::try_from(len).unwrap_or(u64::MAX));
        bar.set_position(0);
        bar.set_message(message);
    }
}

impl Progress for ProgressPrinter {
    fn waiting(&self, trouble: Option<&Trouble>) {
        self.meter.bar.suspend(|| self.server.report(trouble));
    }

    fn draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    fn step(&self, text: &str) {
        self.meter.bar.suspend(|| anstream::eprintln!("{text}"));
    }

    fn scanning(&self, kinds: usize) {
        self.start(kinds, "kinds");
    }

    fn listed(&self, kind: &Resource, objects: u64) {
        let bar = &self.meter.bar;
        bar.inc(1);
        bar.set_message(format!("kinds  {objects} objects  {kind}"));
    }

    fn found(&self, objects: usize) {
        if objects > 0 {
            self.start(objects, "objects with holds");
        }
    }

    fn handled(&self) {
        self.meter
            .advance(|done, objects| format!("{done} of {objects} objects"));
    }
}
