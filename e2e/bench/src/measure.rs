//! The cost of a process so far.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belayer_subject::peak_resident_of;

use belayer_e2e::control_plane::Process;

/// The cost of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    /// From its start to its end.
    pub(crate) wall: Duration,
    /// CPU time of its process, user and system, all threads.
    pub(crate) cpu: Duration,
    /// Peak resident memory of its process, in bytes.
    pub(crate) peak_resident: u64,
}

/// A process measured from its start.
pub(crate) struct Measured {
    process: Process,
    started: Instant,
}

impl Measured {
    /// Starts and measures a process.
    pub(crate) fn start(start: impl FnOnce() -> Result<Process>) -> Result<Self> {
        let started = Instant::now();
        Ok(Self {
            process: start()?,
            started,
        })
    }

    /// The process.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its cost so far. It must still be running.
    pub(crate) fn cost(&mut self) -> Result<Cost> {
        let wall = self.started.elapsed();
        self.process.check_running()?;
        let pid = self.process.pid().context("the process has exited")?;
        let cost = cost_of(pid, self.started)?;
        Ok(Cost { wall, ..cost })
    }

    /// Kills it: a clean stop is not measured.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.process.kill().await
    }
}

/// The cost so far of a process that was started at that time. It must still be running.
pub(crate) fn cost_of(pid: u32, started: Instant) -> Result<Cost> {
    Ok(Cost {
        wall: started.elapsed(),
        cpu: cpu_of(pid)?,
        peak_resident: peak_resident_of(pid)?,
    })
}

/// CPU time of a process, from `/proc/PID/stat`.
pub(crate) fn cpu_of(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read /proc")?;
    cpu_in(&stat).context("/proc/PID/stat is not as expected")
}

/// The same in nanoseconds, from `/proc/PID/task/*/schedstat`, which does not include threads that
/// have ended.
pub(crate) fn cpu_exactly(pid: u32) -> Result<Duration> {
    let mut cpu = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("read /proc")? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let nanos = stat.split_whitespace().next().and_then(|n| n.parse().ok());
        cpu +=
            Duration::from_nanos(nanos.context("/proc/PID/task/TID/schedstat is not as expected")?);
    }
    Ok(cpu)
}

/// The open sockets of a process.
pub(crate) fn sockets_of(pid: u32) -> Result<usize> {
    let mut sockets = 0;
    for file in fs::read_dir(format!("/proc/{pid}/fd")).context("read /proc")? {
        // A file may be closed meanwhile.
        let Ok(target) = fs::read_link(file?.path()) else {
            continue;
        };
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(sockets)
}

/// The name of the program, in parentheses, may contain anything.
fn cpu_in(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    // utime and stime are fields 14 and 15; the first after the name is field 3.
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_secs(user + system) / u32::try_from(ticks).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_after_a_strange_name() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 1 0 5 6 7";
        let ticks = rustix::param::clock_ticks_per_second();
        assert_eq!(
            cpu_in(stat),
            Some(Duration::from_secs(200) / u32::try_from(ticks).unwrap())
        );
        assert_eq!(cpu_in("nonsense"), None);
    }

    #[test]
    fn this_process_has_cost_something() {
        let pid = std::process::id();
        assert!(cpu_of(pid).is_ok());
    }
}
