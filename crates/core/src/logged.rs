//! What is logged in a test.

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// Paper for a subscriber to write on. Clones are the same page.
#[derive(Clone, Default, Debug)]
pub struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    /// What stands there.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A second subscriber, which keeps nothing. While only one subscriber exists, tracing decides whether a log
/// statement is enabled by the thread that first executes it. If that thread has no subscriber, the statement stays
/// disabled for all threads.
static ANOTHER: OnceLock<Dispatch> = OnceLock::new();

/// Keeps what this thread logs, as long as it lives.
#[derive(Debug)]
pub struct Log {
    page: Page,
    _kept: DefaultGuard,
}

impl Log {
    /// Keeps everything from `DEBUG` on.
    pub fn kept() -> Self {
        Self::kept_from(tracing::Level::DEBUG)
    }

    /// Keeps everything from `level` on.
    pub fn kept_from(level: tracing::Level) -> Self {
        ANOTHER.get_or_init(|| {
            let nothing = tracing::level_filters::LevelFilter::OFF;
            Dispatch::new(tracing_subscriber::fmt().with_max_level(nothing).finish())
        });
        let page = Page::default();
        let written = page.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        Self {
            page,
            _kept: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.page.text()
    }

    /// The lines that contain `words`.
    pub fn lines(&self, words: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(words));
        lines.map(str::to_owned).collect()
    }
}
