//! Where a program is started: on this machine, or inside namespaces.

use std::path::Path;

use anyhow::Result;

use super::process::Process;

/// Where a program is started. The default is this machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// The command that enters the namespaces and then executes its arguments.
    enter: Vec<String>,
}

impl Place {
    /// In the network namespace of a process.
    ///
    /// Not by `ip netns exec`: that mounts another /sys, without the cgroups.
    pub(super) fn network_of(pid: u32) -> Self {
        let enter = ["nsenter", &format!("--net=/proc/{pid}/ns/net"), "--"];
        Self {
            enter: enter.map(String::from).to_vec(),
        }
    }

    /// In the process, mount and network namespaces of a process. The program is then a child of the
    /// returned [`Process`].
    pub(super) fn namespaces_of(pid: u32) -> Self {
        let target = format!("--target={pid}");
        let enter = ["nsenter", &target, "--pid", "--mount", "--net", "--"];
        Self {
            enter: enter.map(String::from).to_vec(),
        }
    }

    /// Starts a program there: see [`Process::start`].
    pub(super) fn start(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<Process> {
        let Some((enter, options)) = self.enter.split_first() else {
            return Process::start(name, program, arguments, log);
        };
        let mut all = options.to_vec();
        all.push(program.display().to_string());
        all.extend_from_slice(arguments);
        Process::start(name, Path::new(enter), all, log)
    }
}
