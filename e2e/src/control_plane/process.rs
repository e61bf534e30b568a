//! A child process: logs to a file, is killed with its parent, and is stopped by its own id.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// How much of the end of a log an error contains.
const QUOTED_BYTES: u64 = 3_000;
/// Timeout for the end of a killed process.
const REAP_DEADLINE: Duration = Duration::from_secs(10);

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with its output appended to `log`.
    ///
    /// On Linux the kernel kills the program when the thread that started it ends, so that even a
    /// crash leaves no process: call this from the main thread or a runtime worker.
    pub fn start<I, S>(name: &str, program: &Path, arguments: I, log: &Path) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let arguments = arguments
            .into_iter()
            .map(|argument| argument.as_ref().to_owned());
        let arguments: Vec<OsString> = arguments.collect();
        Ok(Self {
            name: name.to_owned(),
            child: spawn(name, program, &arguments, log)?,
            program: program.to_owned(),
            arguments,
            log: log.to_owned(),
        })
    }

    /// Kills it, and after a pause starts it again as it was started.
    pub async fn restart(&mut self, pause: Duration) -> Result<()> {
        self.kill().await?;
        tokio::time::sleep(pause).await;
        self.child = spawn(&self.name, &self.program, &self.arguments, &self.log)?;
        Ok(())
    }

    /// The program's name, as given at its start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, or `None` after it has exited and been waited for.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Its name and its process id, while it runs.
    pub fn named(&self) -> Option<(String, u32)> {
        self.pid().map(|pid| (self.name.clone(), pid))
    }

    /// The log so far.
    pub fn log(&self) -> Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Checks that the program is running. If it has exited, the error contains the end of its log.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} exited early: {status}\n{}", self.name, self.log_end()),
        }
    }

    /// The last lines of the log, with the path, for an error message.
    pub fn log_end(&self) -> String {
        let end = read_end(&self.log).unwrap_or_default();
        format!("--- end of {} ---\n{end}", self.log.display())
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} has exited", self.name))?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    /// Waits for the exit.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(deadline, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!(
                "{} did not exit within {deadline:?}\n{}",
                self.name,
                self.log_end()
            ),
        }
    }

    /// Kills it and waits for its exit.
    pub async fn kill(&mut self) -> Result<()> {
        self.child
            .kill()
            .await
            .with_context(|| format!("kill {}", self.name))
    }
}

fn spawn(name: &str, program: &Path, arguments: &[OsString], log: &Path) -> Result<Child> {
    let output = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("open the log {}", log.display()))?;
    dies_with_parent(program)
        .args(arguments)
        // Programs in Go collect garbage less often, as long as they use little memory: about a tenth less CPU time.
        .envs([("GOGC", "400"), ("GOMEMLIMIT", "1GiB")])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {name}"))
}

impl Drop for Process {
    /// Kills it and waits for its exit, because its files are removed next.
    fn drop(&mut self) {
        let killed = self.child.start_kill();
        let give_up = Instant::now() + REAP_DEADLINE;
        while killed.is_ok()
            && matches!(self.child.try_wait(), Ok(None))
            && Instant::now() < give_up
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A command whose process the kernel kills with its parent, on Linux.
///
/// `setpriv` of util-linux sets the parent-death signal and then executes the program (the process id
/// stays the same). On other systems the process is only killed on drop.
pub(crate) fn dies_with_parent(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if cfg!(target_os = "linux") && Path::new(SETPRIV).exists() {
        let mut command = Command::new(SETPRIV);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        return command;
    }
    Command::new(program)
}

fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_ends_is_told_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = ["-c", "echo out of rope; exit 3"];
        let mut process = Process::start("sh", Path::new("/bin/sh"), script, &log).unwrap();
        let status = process.wait(Duration::from_secs(10)).await.unwrap();
        assert_eq!(status.code(), Some(3));
        let reported = process.check_running().unwrap_err().to_string();
        assert!(reported.contains("out of rope"), "{reported}");
    }

    #[tokio::test]
    async fn a_restarted_program_is_another_process_with_the_same_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = ["-c", "echo started; sleep 60"];
        let mut process = Process::start("sh", Path::new("/bin/sh"), script, &log).unwrap();
        let first = process.pid();
        process.restart(Duration::ZERO).await.unwrap();
        assert_ne!(process.pid(), first);
        crate::wait::eventually("it has started", Duration::from_secs(10), async || {
            anyhow::ensure!(process.log()?.contains("started"), "no output");
            process.log()
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn a_signal_reaches_the_program_itself() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut process = Process::start("sleep", Path::new("/bin/sleep"), ["60"], &log).unwrap();
        process.signal(Signal::TERM).unwrap();
        let status = process.wait(Duration::from_secs(10)).await.unwrap();
        assert!(!status.success());
    }
}
