//! Builds Go programs and caches them outside the repository.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

/// Whether Go is installed.
pub(crate) fn is_there() -> bool {
    let quiet = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// A short hash of these texts and the platform, as the cache key of a build: a changed text builds
/// again, a new clone of the repository uses the cache.
pub(crate) fn fingerprint(parts: &[&str]) -> String {
    let machine = [std::env::consts::OS, std::env::consts::ARCH];
    let mut hash = Sha256::new();
    for part in parts.iter().chain(&machine) {
        hash.update(part);
        hash.update([0]);
    }
    let hash = hash.finalize();
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A Go program to build.
pub(crate) struct Package<'a> {
    /// The import path, or the folder in the module.
    pub(crate) package: &'a str,
    /// The file to write, in the module's folder.
    pub(crate) name: &'a str,
    /// The module's folder.
    pub(crate) module: &'a Path,
    pub(crate) linker_flags: &'a str,
    /// Separated by commas.
    pub(crate) tags: &'a str,
    /// Whether it contains C code.
    pub(crate) needs_c: bool,
}

impl Package<'_> {
    /// Builds it. `report` is called for every compiled package. The error contains the end of its output.
    pub(crate) fn build(&self, report: impl Fn(&str)) -> Result<()> {
        let name = self.name;
        let mut go = Command::new("go")
            .args([
                "build",
                "-v",
                "-trimpath",
                "-mod=readonly",
                "-buildvcs=false",
            ])
            .args(["-ldflags", self.linker_flags, "-tags", self.tags])
            .args(["-o", name, self.package])
            .env("GOWORK", "off")
            .env("CGO_ENABLED", if self.needs_c { "1" } else { "0" })
            .current_dir(self.module)
            .stderr(Stdio::piped())
            .spawn()
            .context("start go")?;
        let mut reported = Vec::new();
        if let Some(stderr) = go.stderr.take() {
            // `-v` prints each package as it is compiled; other lines are errors.
            let mut packages = 0_usize;
            for line in BufReader::new(stderr.take(64 << 20)).lines() {
                let line = line?;
                packages += 1;
                report(&format!("{name}: {packages} packages, {line}"));
                reported.push(line);
            }
        }
        let status = go.wait()?;
        if !status.success() {
            let end = reported.len().saturating_sub(20);
            bail!(
                "go build {name} failed ({status}):\n{}",
                reported[end..].join("\n")
            );
        }
        Ok(())
    }
}
