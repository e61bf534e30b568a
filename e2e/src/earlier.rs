//! Earlier builds of Belayer, from the history of this repository, for upgrades.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::control_plane::cache_dir;
use crate::progress::Progress;

/// A build of 0.1.0.
pub(crate) const FIRST: &str = "9e062813";

/// Its features: all controllers, and nothing else.
const CONTROLLERS: &str = "pod-finalizer,workflow-finalizer,pod-recreation,pvc-protection";

/// The folder of the workspace when this program was compiled.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn folder(commit: &str) -> PathBuf {
    cache_dir().join("earlier").join(commit)
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(HERE);
    git
}

/// The hash of a commit, by its name, such as a tag.
pub(crate) fn commit(name: &str) -> Result<String> {
    let named = format!("{name}^{{commit}}");
    let output = git()
        .args(["rev-parse", "--verify", "--quiet", &named])
        .output()
        .context("start git")?;
    ensure!(
        output.status.success(),
        "{name} is not a commit of this repository; a clone without history may lack it: git fetch --unshallow"
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Whether [`FIRST`] is built already, or the clone has its source. In continuous integration this is always true, so that
/// a clone without history fails instead of testing nothing.
pub(crate) fn is_available() -> bool {
    let has_source = || {
        let quiet = git()
            .args(["cat-file", "-e", &format!("{FIRST}^{{commit}}")])
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    };
    folder(FIRST).join("belayer").is_file() || crate::is_ci() || has_source()
}

/// The program of a commit, from the cache or built into it, once per machine.
pub(crate) async fn find_or_build(commit: &str) -> Result<PathBuf> {
    let commit = commit.to_owned();
    tokio::task::spawn_blocking(move || build(&commit, &folder(&commit))).await?
}

/// A concurrent build waits for the first and uses its result.
fn build(commit: &str, folder: &Path) -> Result<PathBuf> {
    let program = folder.join("belayer");
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("wait for the build lock")?;
    if program.is_file() {
        return Ok(program);
    }
    Progress::say(&format!(
        "building Belayer of {commit} (once per machine, some minutes)"
    ));
    let source = tempfile::tempdir_in(folder).context("create a build folder")?;
    let archive = source.path().join("source.tar");
    succeed(
        git()
            .args(["archive", "--output"])
            .arg(&archive)
            .arg(commit),
    )
    .context("a clone without history lacks it: git fetch --unshallow")?;
    let tree = source.path().join("tree");
    fs::create_dir(&tree)?;
    succeed(
        Command::new("tar")
            .arg("xf")
            .arg(&archive)
            .arg("-C")
            .arg(&tree),
    )?;
    let target = source.path().join("target");
    succeed(
        Command::new("cargo")
            .args(["build", "--locked", "--quiet", "--package=belayer"])
            .args(["--no-default-features", "--features", CONTROLLERS])
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &target)
            .current_dir(&tree),
    )?;
    // Renamed when complete, so that an interrupted build leaves no partial program.
    fs::rename(target.join("debug/belayer"), &program)?;
    Ok(program)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
