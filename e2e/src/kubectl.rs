//! kubectl as a user runs it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::output::Output;
use crate::wait::SOON;

/// kubectl with an admin's kubeconfig and one namespace.
#[derive(Debug, Clone)]
pub struct Kubectl {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
}

impl Kubectl {
    /// Whether kubectl is installed.
    pub fn is_installed() -> bool {
        let version = std::process::Command::new("kubectl")
            .args(["version", "--client"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    }

    /// Runs one command and returns its output.
    /// Fails if the command fails (the error contains its output) or does not exit within [`SOON`].
    pub async fn run<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        let output = Output::of(self.command().args(arguments), SOON).await;
        let output = output.with_context(|| format!("kubectl {}", arguments.join(" ")))?;
        let (arguments, why) = (arguments.join(" "), output.err.trim());
        ensure!(output.code == 0, "kubectl {arguments}: {why}");
        Ok(output.out)
    }

    /// The command itself, for commands that keep running.
    pub fn command(&self) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", &self.kubeconfig)
            // A shared discovery cache would contain another cluster on the same port.
            .arg(format!("--cache-dir={}.cache", self.kubeconfig.display()))
            .args(["--namespace", &self.namespace])
            .kill_on_drop(true);
        command
    }
}
