//! `cargo xtask docs`.

mod pictures;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{cargo, compile, root};

/// The version of mdBook that builds the site.
const MDBOOK: &str = "0.5.4";

/// Check the links of all documents and build the site from docs/src
///
/// The first call installs a pinned mdBook with cargo into $BELAYER_CACHE, by default ~/.cache/belayer.
#[derive(Debug, Args)]
pub(crate) struct Docs {
    /// Open the site in a browser
    #[arg(long)]
    open: bool,

    /// Draw the pictures again that are made of running programs, into docs/src; needs chromium
    #[arg(long)]
    pictures: bool,
}

impl Docs {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        if self.pictures {
            pictures::draw()?;
        }
        let mut links = cargo();
        links.args(["test", "--workspace", "--test", "tidy"]);
        links.args(["--", "documents::", "words::"]);
        let checked = links.status().context("start cargo")?;
        ensure!(checked.success(), "a document is wrong: see above");
        let mut build = build(&mdbook(&cache()?)?);
        build.args(self.open.then_some("--open"));
        let status = build.status().context("start mdbook")?;
        ensure!(status.success(), "mdbook could not build the site");
        println!("{}", root().join("target/book/index.html").display());
        Ok(ExitCode::SUCCESS)
    }
}

/// The commands that build the site, with their names. The first one is missing if mdBook is in the cache.
pub(crate) fn site() -> Result<Vec<(&'static str, Command)>> {
    let cache = cache()?;
    let program = installed(&cache);
    let mut commands = Vec::new();
    if !program.exists() {
        commands.push(("build mdBook", install(&cache)));
    }
    commands.push(("the site", build(&program)));
    Ok(commands)
}

/// Builds the site. Its title has the version, so that the sites of two tags can be told apart.
fn build(program: &Path) -> Command {
    let mut build = Command::new(program);
    let title = concat!("Belayer ", env!("CARGO_PKG_VERSION"));
    build
        .arg("build")
        .arg(root().join("docs"))
        .env("MDBOOK_BOOK__TITLE", title);
    build
}

/// Belayer's cache folder, as for the control plane.
fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("BELAYER_CACHE")
        .map(PathBuf::from)
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| Path::new(&folder).join("belayer")));
    folder
        .or_else(|| Some(std::env::home_dir()?.join(".cache/belayer")))
        .context("no folder for the cache: set BELAYER_CACHE")
}

fn folder(cache: &Path) -> PathBuf {
    cache.join(format!("mdbook-{MDBOOK}"))
}

fn installed(cache: &Path) -> PathBuf {
    folder(cache).join("bin/mdbook")
}

/// The program, installed if it is not in the cache.
fn mdbook(cache: &Path) -> Result<PathBuf> {
    let program = installed(cache);
    if program.exists() {
        return Ok(program);
    }
    compile(install(cache))?;
    Ok(program)
}

/// Without optimization: it compiles in half the time, and the site takes seconds either way.
fn install(cache: &Path) -> Command {
    let mut install = cargo();
    install
        .args(["install", "mdbook", "--locked", "--version", MDBOOK])
        .args(["--no-default-features", "--features", "search"])
        .args(["--debug", "--root"])
        .arg(folder(cache))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("CARGO_TARGET_DIR");
    install
}
