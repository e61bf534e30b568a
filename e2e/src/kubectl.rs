//! kubectl as a user runs it.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

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
        let running = self.command().args(arguments).stdin(Stdio::null()).output();
        let printed = match tokio::time::timeout(SOON, running).await {
            Ok(output) => output.context("start kubectl")?,
            Err(_) => bail!(
                "kubectl {} did not exit within {SOON:?}",
                arguments.join(" ")
            ),
        };
        if !printed.status.success() {
            let why = String::from_utf8_lossy(&printed.stderr);
            bail!("kubectl {}: {}", arguments.join(" "), why.trim());
        }
        Ok(String::from_utf8_lossy(&printed.stdout).into_owned())
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
