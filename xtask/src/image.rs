//! `cargo xtask image`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use belayer_image::Compression;
use clap::{Args, ValueEnum};

use crate::cargo::{built, compile, has_plugin, release_by, root};

/// The plugin of cargo that writes into a program what it was built from.
const AUDITABLE: &str = "auditable";

/// The largest permitted image, compressed.
const LIMIT: u64 = 15 << 20;

/// Write Belayer's container image without a container engine
///
/// Builds the release binary, and writes an OCI layout and the same as an archive into target/image. The
/// same binary gives the same digest.
#[derive(Debug, Args)]
pub(crate) struct Image {
    /// The reference of the image; by default that of the shipped manifests
    #[arg(long, value_name = "REFERENCE")]
    name: Option<String>,

    /// A `belayer` binary to pack, instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    /// Import the image where pods of a node find it
    #[arg(long, value_enum)]
    load: Option<Load>,

    /// The kind cluster to load it into
    #[arg(long, default_value = "kind", value_name = "NAME")]
    kind_cluster: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Load {
    /// By `ctr -n k8s.io images import`, on this machine
    Containerd,
    /// By `kind load image-archive`
    Kind,
}

impl Image {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let name = self.name.map_or_else(belayer_image::shipped_name, Ok)?;
        let folder = root().join("target/image");
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder)?;
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => release_binary(&folder)?,
        };
        let image = belayer_image::belayer(&name, &binary)?;
        let written = image.write_layout(&folder.join("layout"), Compression::Gzip)?;
        let archive = folder.join("belayer.tar");
        image.write_archive(&archive, Compression::Gzip)?;
        println!("{name}");
        println!("digest   {}", written.digest);
        println!(
            "size     {:.1} MiB",
            written.bytes as f64 / f64::from(1 << 20)
        );
        println!("layout   {}", folder.join("layout").display());
        println!("archive  {}", archive.display());
        if self.binary.is_none() {
            check_size(written.bytes)?;
        }
        let mut load = match self.load {
            None => return Ok(ExitCode::SUCCESS),
            Some(Load::Containerd) => {
                let mut command = Command::new("ctr");
                command.args(["--namespace", "k8s.io", "images", "import"]);
                command
            }
            Some(Load::Kind) => {
                let mut command = Command::new("kind");
                command.args(["load", "image-archive", "--name", &self.kind_cluster]);
                command
            }
        };
        let program = load.get_program().to_string_lossy().into_owned();
        let status = load
            .arg(&archive)
            .status()
            .with_context(|| format!("start {program}"))?;
        ensure!(status.success(), "{program} could not load the image");
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether the binary contains the list of its dependencies: the section that cargo-auditable adds.
pub(crate) fn is_auditable(binary: &Path) -> Result<bool> {
    let bytes = std::fs::read(binary)?;
    Ok(bytes.windows(8).any(|part| part == b".dep-v0\0"))
}

/// The limit is for the shipped binary: others have symbols.
pub(crate) fn check_size(bytes: u64) -> Result<()> {
    ensure!(
        bytes <= LIMIT,
        "the image has {bytes} bytes, more than {} MiB",
        LIMIT >> 20
    );
    Ok(())
}

/// The binary that is shipped, if its image is not too large.
pub(crate) fn checked_binary() -> Result<PathBuf> {
    let folder = root().join("target/shipped");
    std::fs::remove_dir_all(&folder).ok();
    std::fs::create_dir_all(&folder)?;
    let binary = release_binary(&folder)?;
    let image = belayer_image::belayer(&belayer_image::shipped_name()?, &binary)?;
    let written = image.write_layout(&folder.join("layout"), Compression::Gzip)?;
    println!(
        "the image has {:.1} MiB",
        written.bytes as f64 / f64::from(1 << 20)
    );
    check_size(written.bytes)?;
    Ok(binary)
}

/// The binary that is shipped: without demo and sandbox, and in `folder` without symbols.
pub(crate) fn release_binary(folder: &Path) -> Result<PathBuf> {
    // With the plugin the binary contains the list of its dependencies, in which scanners look for known vulnerabilities.
    let plugin = has_plugin(AUDITABLE).then_some(AUDITABLE);
    compile(release_by(plugin, &["belayer"]))?;
    let whole = built("release", "belayer");
    let path = folder.join("belayer");
    let status = Command::new("strip")
        .arg("-o")
        .arg(&path)
        .arg(whole.get_program())
        .status()
        .context("start strip (Debian: apt-get install binutils)")?;
    ensure!(status.success(), "strip failed");
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_image_is_refused() {
        assert!(check_size(LIMIT).is_ok());
        let refused = check_size(LIMIT + 1).unwrap_err().to_string();
        assert!(refused.ends_with("more than 15 MiB"), "{refused}");
    }
}
