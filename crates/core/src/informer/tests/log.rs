//! What was logged in a test.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what this thread logs, as long as it lives.
pub(super) struct Log {
    page: Page,
    _kept: DefaultGuard,
}

impl Log {
    pub(super) fn kept() -> Self {
        let page = Page::default();
        let written = page.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        Self {
            page,
            _kept: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The lines that contain `words`.
    pub(super) fn lines(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8(self.page.0.lock().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains(words));
        lines.map(str::to_owned).collect()
    }
}
