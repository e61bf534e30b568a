//! How far the scan is: a bar on a terminal; elsewhere a line now and then, if it takes long.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use belayer_inspect::kinds::Kind;
use belayer_inspect::scan::Progress;

/// Without a terminal, a line at most so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Telling {
    bar: Option<ProgressBar>,
    kinds: AtomicUsize,
    listed: AtomicUsize,
    told: Mutex<Instant>,
}

impl Telling {
    pub(super) fn on_stderr() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(
                ProgressStyle::with_template("{bar:24} {pos}/{len} kinds  {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Self {
            bar,
            kinds: AtomicUsize::new(0),
            listed: AtomicUsize::new(0),
            told: Mutex::new(Instant::now()),
        }
    }

    /// The bar goes: what follows is the report.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Telling {
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
        let Ok(mut told) = self.told.lock() else {
            return;
        };
        if told.elapsed() >= LINE_EVERY {
            *told = Instant::now();
            let kinds = self.kinds.load(Ordering::Relaxed);
            anstream::eprintln!("listed {listed} of {kinds} kinds, {objects} objects");
        }
    }
}
