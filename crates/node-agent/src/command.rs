//! Configured programs (handlers and hooks): their arguments, and running them.
//!
//! No shell is involved, so a pod name is never parsed as a command.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use belayer_core::object::ObjectKey;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::layout::Place;
use crate::uid::PodUid;

/// Characters of a program's output shown in an error: the last ones.
const SHOWN: usize = 400;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long a killed group may take to end, and how often that is checked.
const REAP_WITHIN: Duration = Duration::from_secs(1);
const REAP_POLL: Duration = Duration::from_millis(5);

/// The placeholders in arguments.
const PLACEHOLDERS: [&str; 3] = ["{podUID}", "{podName}", "{podNamespace}"];

/// A configured program and its arguments with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Name in messages.
    pub name: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// Longest duration of a run.
    pub timeout: Duration,
}

/// The pod that the work is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name. The key of its lifecycle can differ: see `LifecycleUpdater`.
    pub key: ObjectKey,
    /// Its UID, safe as a path component.
    pub uid: PodUid,
}

/// An invalid command in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The command is empty.
    #[error("a command needs a program")]
    Empty,
    /// The program is not an absolute path, or contains a placeholder.
    #[error("{0:?} must be the absolute path of a program")]
    Program(String),
    /// The program is missing or not executable.
    #[error("{program:?} cannot be run: {reason}")]
    Unusable {
        /// The program.
        program: String,
        /// Reason.
        reason: String,
    },
    /// An argument has an unknown placeholder.
    #[error(
        "the argument {0:?}: the placeholders are {{podUID}}, {{podName}} and {{podNamespace}}"
    )]
    Placeholder(String),
    /// An argument contains NUL.
    #[error("the argument {0:?} contains a NUL byte")]
    Nul(String),
    /// The time limit is out of range.
    #[error("invalid time limit of {0} s: from 1 to 3600")]
    Timeout(u64),
}

/// Why a program did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error("{name} did not start: {reason}")]
    Start {
        /// The command.
        name: String,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// It exited with an error or by a signal.
    #[error("{name} failed: {status}{output}")]
    Failed {
        /// The command.
        name: String,
        /// Exit status.
        status: ExitStatus,
        /// The end of its output.
        output: Output,
    },
    /// It exceeded its time limit, and it and all processes of its group were killed.
    #[error("{name} was killed after {limit:?}{output}")]
    Timeout {
        /// The command.
        name: String,
        /// Its time limit.
        limit: Duration,
        /// The end of its output.
        output: Output,
    },
    /// The run was cancelled.
    #[error("{name} was stopped")]
    Cancelled {
        /// The command.
        name: String,
    },
}

/// The end of a program's output, printed in one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output(Vec<u8>);

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * SHOWN {
            self.0.drain(..self.0.len() - SHOWN);
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        let parts: Vec<&str> = text.split_whitespace().collect();
        let line: String = parts
            .join(" ")
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        if line.is_empty() {
            return Ok(());
        }
        let count = line.chars().count();
        let end: String = line.chars().skip(count.saturating_sub(SHOWN)).collect();
        write!(f, ": {end}")
    }
}

impl Command {
    /// Checks a command: the absolute path of a program, followed by its arguments.
    ///
    /// # Errors
    ///
    /// If the command is invalid.
    pub fn new(
        name: impl Into<String>,
        argv: Vec<String>,
        timeout_seconds: u64,
    ) -> Result<Self, CommandError> {
        let mut arguments = argv.into_iter();
        let program = arguments.next().ok_or(CommandError::Empty)?;
        if !program.starts_with('/') || program.contains(['{', '}', '\0']) {
            return Err(CommandError::Program(program));
        }
        let arguments: Vec<String> = arguments.collect();
        for argument in &arguments {
            let mut rest = argument.clone();
            for known in PLACEHOLDERS {
                rest = rest.replace(known, "");
            }
            // Other braces belong to the program, for example those of JSON.
            if rest.contains("{pod") {
                return Err(CommandError::Placeholder(argument.clone()));
            }
            if argument.contains('\0') {
                return Err(CommandError::Nul(argument.clone()));
            }
        }
        if !(1..=3_600).contains(&timeout_seconds) {
            return Err(CommandError::Timeout(timeout_seconds));
        }
        Ok(Self {
            name: name.into(),
            program: program.into(),
            arguments,
            timeout: Duration::from_secs(timeout_seconds),
        })
    }

    /// Checks that the program exists and is executable.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn check(&self) -> Result<(), CommandError> {
        let unusable = |reason: String| CommandError::Unusable {
            program: self.program.display().to_string(),
            reason,
        };
        let access = rustix::fs::access(&self.program, rustix::fs::Access::EXEC_OK);
        access.map_err(|errno| unusable(io::Error::from(errno).to_string()))?;
        match std::fs::metadata(&self.program) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => Err(unusable("not a file".to_owned())),
            Err(error) => Err(unusable(error.to_string())),
        }
    }

    /// Runs the program for a pod, until `limit` or its own time limit, whichever is earlier. Its stdin is
    /// empty; its environment is `POD_UID`, `POD_NAME`, `POD_NAMESPACE`, `POD_PATHS` (the pod's
    /// directories, separated by colons) and `PATH`.
    ///
    /// When this returns, the program and every process of its group have ended. A cancelled program gets
    /// SIGTERM, and SIGKILL two seconds later.
    ///
    /// # Errors
    ///
    /// If the program did not exit successfully.
    pub async fn run(
        &self,
        pod: &Pod,
        places: &[Place],
        limit: Instant,
        cancel: &CancellationToken,
    ) -> Result<(), RunError> {
        let started = |reason| RunError::Start {
            name: self.name.clone(),
            reason,
        };
        if cancel.is_cancelled() {
            return Err(RunError::Cancelled {
                name: self.name.clone(),
            });
        }
        let begun = Instant::now();
        let limit = limit.min(begun + self.timeout);
        let (mut group, mut output) = self.start(pod, places).map_err(started)?;
        let ended = tokio::select! {
            ended = group.ended(&mut output) => Ok(ended.map_err(started)?),
            () = sleep_until(limit) => Err(RunError::Timeout {
                name: self.name.clone(),
                limit: limit.duration_since(begun),
                output: Output::default(),
            }),
            () = cancel.cancelled() => {
                group.signal(Signal::TERM);
                let patience = tokio::time::timeout(GRACE, group.ended(&mut output)).await;
                drop(patience);
                Err(RunError::Cancelled { name: self.name.clone() })
            }
        };
        // Before the program is reaped: until then no other process can get its pid.
        group.signal(Signal::KILL);
        let status = group.reap().await.map_err(started)?;
        output.drain();
        match ended {
            Ok(()) if status.success() => Ok(()),
            Ok(()) => Err(RunError::Failed {
                name: self.name.clone(),
                status,
                output: output.text,
            }),
            Err(RunError::Timeout { name, limit, .. }) => Err(RunError::Timeout {
                name,
                limit,
                output: output.text,
            }),
            Err(error) => Err(error),
        }
    }

    fn start(&self, pod: &Pod, places: &[Place]) -> io::Result<(Group, Reading)> {
        let (reader, writer) = io::pipe()?;
        let paths: Vec<String> = places
            .iter()
            .map(|place| place.path().display().to_string())
            .collect();
        let child = std::process::Command::new(&self.program)
            .args(self.arguments.iter().map(|text| filled(text, pod)))
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("POD_UID", pod.uid.as_str())
            .env("POD_NAME", pod.key.name())
            .env("POD_NAMESPACE", pod.key.namespace().unwrap_or_default())
            .env("POD_PATHS", paths.join(":"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .spawn()?;
        Ok((
            Group::new(child)?,
            Reading {
                pipe: pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?,
                text: Output::default(),
            },
        ))
    }
}

fn filled(text: &str, pod: &Pod) -> String {
    let [uid, name, namespace] = PLACEHOLDERS;
    // In one pass: placeholders in a value are not replaced.
    let mut out = String::with_capacity(text.len() + 40);
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (known, value) = if rest.starts_with(uid) {
            (uid, pod.uid.as_str())
        } else if rest.starts_with(namespace) {
            (namespace, pod.key.namespace().unwrap_or_default())
        } else if rest.starts_with(name) {
            (name, pod.key.name())
        } else {
            ("{", "{")
        };
        out.push_str(value);
        rest = &rest[known.len()..];
    }
    out.push_str(rest);
    out
}

/// A program and its children, in a process group of their own.
struct Group {
    child: Child,
    pid: Option<Pid>,
    /// Readable once the program has ended. Reading does not reap it.
    pidfd: AsyncFd<OwnedFd>,
    reaped: bool,
}

impl Group {
    fn new(mut child: Child) -> io::Result<Self> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let watched = pid
            .ok_or_else(|| io::Error::other("no process id"))
            .and_then(|pid| {
                let fd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
                #[expect(
                    deprecated,
                    reason = "sound for an owned descriptor; its replacement is unsafe"
                )]
                AsyncFd::with_interest(fd, Interest::READABLE)
            });
        match watched {
            Ok(pidfd) => Ok(Self {
                child,
                pid,
                pidfd,
                reaped: false,
            }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Waits for the end of the program, and reads its output so that it never blocks on a full pipe.
    async fn ended(&mut self, output: &mut Reading) -> io::Result<()> {
        loop {
            tokio::select! {
                ended = self.pidfd.readable() => return ended.map(drop),
                open = output.more() => if !open {
                    return self.pidfd.readable().await.map(drop);
                },
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid.filter(|_| !self.reaped) {
            // No process left in the group: nothing to do.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    async fn reap(&mut self) -> io::Result<ExitStatus> {
        self.pidfd.readable().await?.retain_ready();
        self.reaped = true;
        let status = self.child.wait()?;
        let deadline = Instant::now() + REAP_WITHIN;
        while self.pid.is_some_and(has_members) && Instant::now() < deadline {
            tokio::time::sleep(REAP_POLL).await;
        }
        Ok(status)
    }
}

/// Reaps the processes of a killed group that have ended, and says whether more of them are children of this process. The agent is
/// the first process of its container, so that each process that a program leaves behind becomes its child.
fn has_members(group: Pid) -> bool {
    loop {
        match rustix::process::waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

impl Drop for Group {
    /// Kills the group if the waiting future is dropped.
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
            let deadline = std::time::Instant::now() + REAP_WITHIN;
            if let Some(group) = self.pid.filter(|pid| has_members(*pid)) {
                std::thread::spawn(move || {
                    while has_members(group) && std::time::Instant::now() < deadline {
                        std::thread::sleep(REAP_POLL);
                    }
                });
            }
        }
    }
}

struct Reading {
    pipe: pipe::Receiver,
    text: Output,
}

impl Reading {
    /// Waits for output; returns whether there can be more.
    async fn more(&mut self) -> bool {
        self.pipe.readable().await.is_ok() && self.drain()
    }

    /// Reads the available output; returns whether there can be more.
    fn drain(&mut self) -> bool {
        let mut buffer = [0; 4_096];
        loop {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.text.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
