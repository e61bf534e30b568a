//! Cleans up after this process, also if it is killed.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Timeout of a clean-up.
const DEADLINE: Duration = Duration::from_secs(60);

/// A shell that waits until this process has ended, however it ends, and then runs a script. Dropping the
/// guard runs the script and waits for its end.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Starts the shell, with the arguments as `$1` and so on. It keeps `lock` open, and so locked, until
    /// its script has ended.
    pub(crate) fn start(script: &str, arguments: &[&str], lock: Option<File>) -> Result<Self> {
        // The shell's standard input ends with this process.
        let script = format!("cat >/dev/null\n{script}");
        let shell = Command::new("/bin/sh")
            .args(["-c", &script, "guard"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(lock.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            // Ctrl-C in the terminal must not reach it.
            .process_group(0)
            .spawn()
            .context("start /bin/sh")?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let give_up = Instant::now() + DEADLINE;
        while matches!(self.shell.try_wait(), Ok(None)) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_when_the_guard_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made");
        let path = file.display().to_string();
        let guard = Guard::start(": >\"$1\"", &[&path], None).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!file.exists());
        drop(guard);
        assert!(file.exists());
    }

    #[test]
    fn the_guard_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        let guard = Guard::start("", &[], Some(lock)).unwrap();
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        drop(guard);
        assert!(other.try_lock().is_ok());
    }
}
