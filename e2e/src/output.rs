//! The exit code and output of a program that has ended.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

/// The exit code and output of a command.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

impl Output {
    /// Runs a command without standard input, and kills it if it does not exit in time.
    pub async fn of(command: &mut Command, deadline: Duration) -> Result<Self> {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let ended = tokio::time::timeout(deadline, output).await;
        let program = command.as_std().get_program().display();
        let started = ended.with_context(|| format!("{program} did not exit in {deadline:?}"))?;
        Ok(started.with_context(|| format!("start {program}"))?.into())
    }

    /// Requires this exit code. The error contains the output.
    pub fn exited_with(self, code: i32) -> Result<Self> {
        ensure!(
            self.code == code,
            "exit code {} instead of {code}:\n{}\n{}",
            self.code,
            self.out,
            self.err
        );
        Ok(self)
    }

    /// Requires exit code 0. The error contains the output.
    pub fn success(self) -> Result<Self> {
        self.exited_with(0)
    }

    /// Standard output, then standard error.
    pub fn printed(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    /// Standard output as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("not JSON: {}", self.printed()))
    }
}
