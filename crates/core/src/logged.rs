//! Captures the log output of a test.
//!
//! ```
//! use belayer_core::logged::Log;
//!
//! let log = Log::kept();
//! tracing::info!("started");
//! assert!(log.text().contains("started"));
//! ```

use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// A buffer that a subscriber writes to. Clones share it. [`Log`] writes to one. The [module's
/// example](self) reads one.
#[derive(Clone, Default, Debug)]
pub struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    /// The text so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Buffer {
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
static SECOND: OnceLock<Dispatch> = OnceLock::new();

/// Captures what this thread logs while this value lives. The [module's example](self) reads it.
#[derive(Debug)]
pub struct Log {
    buffer: Buffer,
    _subscriber: DefaultGuard,
}

impl Log {
    /// Captures everything from `DEBUG` on.
    pub fn kept() -> Self {
        Self::kept_from(tracing::Level::DEBUG)
    }

    /// Captures everything from `level` on.
    pub fn kept_from(level: tracing::Level) -> Self {
        SECOND.get_or_init(|| {
            let nothing = tracing::level_filters::LevelFilter::OFF;
            Dispatch::new(tracing_subscriber::fmt().with_max_level(nothing).finish())
        });
        let buffer = Buffer::default();
        let written = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        Self {
            buffer,
            _subscriber: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The captured text so far.
    pub fn text(&self) -> String {
        self.buffer.text()
    }

    /// The captured lines that contain `text`.
    pub fn lines(&self, text: &str) -> Vec<String> {
        let all = self.text();
        let lines = all.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}
