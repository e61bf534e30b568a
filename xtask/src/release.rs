//! `cargo xtask release`.

mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use belayer_image::Compression;
use clap::Args;

use crate::cargo::{built, compile, root};
use crate::e2e;
use crate::image::{check_size, is_auditable, release_binary};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Shells, and the names under which they find completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "belayer.bash"),
    ("zsh", "_belayer"),
    ("fish", "belayer.fish"),
];

/// Make and verify every artifact of a release for this host
///
/// The archive with binary, license, manual pages and completions, the image as an OCI layout, the list of
/// dependencies (CycloneDX), the chart, the checksums, and the manifest for krew with the checksums of the archives, in
/// target/release-artifacts. Nothing is published: the release workflow does that. The same binary gives the same
/// files. Helm 3 and 4 check the packed chart; they are built the first time.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Publish nothing. There is no other way yet
    #[arg(long, required = true)]
    dry_run: bool,

    /// A `belayer` binary to pack, instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    /// The repository of the image, which the image and the chart name; by default the one of the shipped manifests,
    /// which cannot exist
    #[arg(long, value_name = "REPOSITORY")]
    image_repository: Option<String>,

    /// Only the files that differ from host to host
    #[arg(long, conflicts_with = "finish")]
    only_host: bool,

    /// A folder with the files of every host: add the chart, the checksums and the manifest for krew
    #[arg(long, value_name = "FOLDER", conflicts_with = "binary")]
    finish: Option<PathBuf>,
}

impl Release {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let folder = match &self.finish {
            Some(folder) => folder.canonicalize()?,
            None => emptied("target/release-artifacts")?,
        };
        if self.finish.is_none() {
            self.host_files(&folder)?;
        }
        if !self.only_host {
            chart(&folder, self.image_repository.as_deref())?;
            let sums = checksums(&folder)?;
            let lacking = krew(&folder, &sums)?;
            ensure!(
                self.finish.is_none() || lacking.is_empty(),
                "krew's manifest names archives that are not in {}: {}",
                folder.display(),
                lacking.join(", ")
            );
            for archive in lacking {
                println!("{KREW} has no checksum of {archive}: another host makes it");
            }
        }
        for name in names(&folder)? {
            let size = fs::metadata(folder.join(&name))?.len();
            println!("{size:>10} {name}");
        }
        println!("in {}; nothing was published", folder.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Makes the files that differ from host to host.
    fn host_files(&self, folder: &Path) -> Result<()> {
        let work = emptied("target/release-work")?;
        let binary = match &self.binary {
            Some(binary) => binary.canonicalize()?,
            None => release_binary(&work)?,
        };
        let printed = output(Command::new(&binary).arg("version"))?;
        ensure!(
            printed.contains(VERSION),
            "the binary is not {VERSION}: {printed}"
        );
        let host = host()?;
        let [archived, image_file, dependencies] = files_of(&host);
        if self.binary.is_none() && !is_auditable(&binary)? {
            let lacking = "the binary does not contain the list of its dependencies: \
                           cargo install --locked cargo-auditable";
            ensure!(!crate::is_ci(), lacking);
            println!("{lacking}");
        }
        archive(&binary, &work, &folder.join(archived))?;
        // Containers are for Linux.
        if cfg!(target_os = "linux") {
            check_glibc(&binary)?;
            let name = match &self.image_repository {
                Some(repository) => format!("{repository}:{VERSION}"),
                None => belayer_image::shipped_name()?,
            };
            let bytes = image(&name, &binary, &folder.join(image_file))?;
            if self.binary.is_none() {
                check_size(bytes)?;
            }
        }
        sbom::write(&folder.join(dependencies), &host)
    }
}

/// Makes the files of a release with the debug binary that the tests have built.
pub(crate) fn with_test_binary() -> Result<Command> {
    let mut command = with_shipped_binary()?;
    command
        .arg("--image-repository=registry.example.com/belayer")
        .arg("--binary")
        .arg(built("debug", "belayer").get_program());
    Ok(command)
}

/// Makes the files of a release.
pub(crate) fn with_shipped_binary() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["release", "--dry-run"]);
    Ok(command)
}

/// The newest release of glibc that the archived binary may need: that of RHEL 9; Debian 12 and Ubuntu 22.04 have newer ones.
const GLIBC: (u32, u32) = (2, 34);

/// Checks that the binary starts on older systems too. The image brings its own libraries.
fn check_glibc(binary: &Path) -> Result<()> {
    let needed = newest_glibc(&fs::read(binary)?);
    ensure!(
        needed <= Some(GLIBC),
        "the binary needs a newer glibc than {}.{}: {needed:?}. Build it on an older system",
        GLIBC.0,
        GLIBC.1
    );
    Ok(())
}

/// The newest version among symbols such as `GLIBC_2.34`.
fn newest_glibc(binary: &[u8]) -> Option<(u32, u32)> {
    const PREFIX: &[u8] = b"\0GLIBC_";
    let starts = binary
        .windows(PREFIX.len())
        .enumerate()
        .filter_map(|(at, part)| (part == PREFIX).then_some(at + PREFIX.len()));
    let versions = starts.filter_map(|at| {
        let text = binary[at..].split(|byte| *byte == 0).next()?;
        let mut numbers = std::str::from_utf8(text).ok()?.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some((next()?, next()?))
    });
    versions.max()
}

/// The names of the files that a host makes: archive, image, dependencies.
fn files_of(host: &str) -> [String; 3] {
    let of = |end: &str| format!("belayer-{VERSION}-{host}{end}");
    [of(".tar.gz"), of("-image.tar"), of(".cdx.json")]
}

/// The name of the chart, which is made once for all hosts.
fn chart_file() -> String {
    format!("belayer-chart-{VERSION}.tgz")
}

/// An empty folder, by its path in the repository.
fn emptied(path: &str) -> Result<PathBuf> {
    let folder = root().join(path);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The files of a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The archive that the krew manifest and the release page name.
fn archive(binary: &Path, work: &Path, path: &Path) -> Result<()> {
    let content = work.join("archive");
    fs::create_dir_all(content.join("completions"))?;
    fs::copy(binary, content.join("belayer"))?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
        fs::copy(root().join(file), content.join(file))?;
    }
    let kubectl = content.join("completions/kubectl_complete-belayer");
    fs::copy(root().join("deploy/krew/kubectl_complete-belayer"), kubectl)?;
    run(Command::new(binary)
        .args(["man", "--dir"])
        .arg(content.join("man")))?;
    for (shell, name) in COMPLETIONS {
        let script = output(Command::new(binary).args(["completions", shell]))?;
        fs::write(content.join("completions").join(name), script)?;
    }
    pack(&content, ".", path)?;
    let listed = output(Command::new(TAR).arg("-tzf").arg(path))?;
    for file in [
        "./belayer",
        "./LICENSE",
        "./man/belayer.1",
        "./completions/_belayer",
        "./completions/kubectl_complete-belayer",
    ] {
        ensure!(
            listed.lines().any(|line| line == file),
            "{} does not contain {file}",
            path.display()
        );
    }
    let unpacked = work.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    run(Command::new(TAR)
        .arg("-xzf")
        .arg(path)
        .arg("-C")
        .arg(&unpacked))?;
    let printed = output(Command::new(unpacked.join("belayer")).arg("version"))?;
    ensure!(
        printed.contains(VERSION),
        "the unpacked binary prints {printed}"
    );
    Ok(())
}

/// The triple of this host, as rustc names it.
fn host() -> Result<String> {
    let printed = output(Command::new("rustc").arg("-vV"))?;
    let host = printed.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// GNU tar.
const TAR: &str = if cfg!(target_os = "macos") {
    "gtar"
} else {
    "tar"
};

/// A tar.gz of `path` in `folder` that depends on the content alone.
fn pack(folder: &Path, path: &str, archive: &Path) -> Result<()> {
    run(Command::new(TAR)
        .args([
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .args([
            "--mode=u+rw,go+r,go-w",
            "--use-compress-program=gzip -n",
            "-cf",
        ])
        .arg(archive)
        .arg("-C")
        .arg(folder)
        .arg(path))
}

/// The image as an archive of an OCI layout, with the size of its blobs; written twice, it must be the same.
fn image(name: &str, binary: &Path, path: &Path) -> Result<u64> {
    let image = belayer_image::belayer(name, binary)?;
    let again = path.with_extension("again");
    let written = image.write_archive(path, Compression::Gzip)?;
    image.write_archive(&again, Compression::Gzip)?;
    let same = fs::read(path)? == fs::read(&again)?;
    fs::remove_file(again)?;
    ensure!(same, "the image differs between two writes");
    Ok(written.bytes)
}

/// The chart as Helm packages it: one folder with the chart's name, and the repository of the image in its values. Helm
/// must accept the archive.
fn chart(folder: &Path, repository: Option<&str>) -> Result<()> {
    let charts = emptied("target/release-chart")?;
    run(Command::new("cp")
        .arg("-R")
        .arg(root().join("deploy/charts/belayer"))
        .arg(&charts))?;
    if let Some(repository) = repository {
        name_image(&charts.join("belayer/values.yaml"), repository)?;
    }
    let text = fs::read_to_string(charts.join("belayer/Chart.yaml"))?;
    let named = text
        .lines()
        .any(|line| line == format!("version: {VERSION}"));
    ensure!(named, "the chart is not {VERSION}");
    let archive = folder.join(chart_file());
    pack(&charts, "belayer", &archive)?;
    compile(e2e::build())?;
    let mut check = e2e::program();
    check.arg("chart-archive").arg(archive);
    if let Some(repository) = repository {
        check.arg(format!("--image-repository={repository}"));
    }
    run(&mut check)
}

/// Sets the repository of the image in the values of the chart.
fn name_image(values: &Path, repository: &str) -> Result<()> {
    let text = fs::read_to_string(values)?;
    let shipped = belayer_image::shipped_name()?;
    let invalid = shipped.rsplit_once(':').map_or(&*shipped, |(name, _)| name);
    let comment = text.lines().find(|line| line.contains("cannot exist"));
    let comment = comment.context("values.yaml no longer says that the host cannot exist")?;
    let named = text
        .replace(&format!("{comment}\n"), "")
        .replace(invalid, repository);
    ensure!(
        !named.contains(invalid) && named.contains(repository),
        "values.yaml does not name {invalid}"
    );
    fs::write(values, named)?;
    Ok(())
}

/// The name of the file with the checksums.
const SUMS: &str = "SHA256SUMS";

/// A file that `sha256sum --check` reads, and that it has read: of every other file but the manifest for krew.
fn checksums(folder: &Path) -> Result<String> {
    let mut summed = names(folder)?;
    summed.retain(|name| ![SUMS, KREW].contains(&name.as_str()));
    let sums = output(Command::new("sha256sum").args(summed).current_dir(folder))?;
    fs::write(folder.join(SUMS), &sums)?;
    run(Command::new("sha256sum")
        .args(["--check", "--quiet", SUMS])
        .current_dir(folder))?;
    Ok(sums)
}

/// The name of krew's manifest.
const KREW: &str = "belayer.yaml";

/// Writes krew's manifest with the checksums of the archives. Returns the archives that have none.
fn krew(folder: &Path, sums: &str) -> Result<Vec<String>> {
    let manifest = fs::read_to_string(root().join("deploy/krew").join(KREW))?;
    let (manifest, lacking) = with_sums(&manifest, sums);
    fs::write(folder.join(KREW), manifest)?;
    Ok(lacking)
}

/// The manifest with the checksums that `sha256sum` printed, and the archives that it did not name.
fn with_sums(manifest: &str, sums: &str) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut lacking = Vec::new();
    let mut sum = None;
    for line in manifest.lines() {
        let (key, value) = line.split_once(": ").unwrap_or_default();
        match key.trim() {
            "uri" => {
                let archive = value.rsplit('/').next().unwrap_or_default();
                let mut pairs = sums.lines().filter_map(|line| line.split_once("  "));
                sum = pairs.find_map(|(sum, name)| (name == archive).then_some(sum));
                if sum.is_none() {
                    lacking.push(archive.to_owned());
                }
            }
            "sha256" => {
                if let Some(sum) = sum.take() {
                    text.push_str(&format!("{key}: \"{sum}\"\n"));
                    continue;
                }
            }
            _ if line.trim() == "# The release writes the checksum." => continue,
            _ => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    (text, lacking)
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;

    /// The hosts of the release workflow.
    const HOSTS: [&str; 4] = [
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "x86_64-apple-darwin",
        "aarch64-apple-darwin",
    ];

    fn manifest() -> String {
        fs::read_to_string(root().join("deploy/krew").join(KREW)).unwrap()
    }

    #[test]
    fn the_newest_glibc_is_found() {
        let symbols = b"x\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0__x@@GLIBC_2.99\0";
        assert_eq!(newest_glibc(symbols), Some((2, 34)));
        assert_eq!(newest_glibc(b"static"), None);
    }

    /// All files go to one page: the second host must not replace files of the first.
    #[test]
    fn release_no_file_of_two_hosts_has_the_same_name() {
        let all = HOSTS.iter().flat_map(|host| files_of(host));
        let all: Vec<String> = all
            .chain([chart_file(), SUMS.to_owned(), KREW.to_owned()])
            .collect();
        let different: BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }

    #[test]
    fn release_krew_installs_the_archives_of_the_hosts() {
        let (_, lacking) = with_sums(&manifest(), "");
        let archives = HOSTS.map(|host| files_of(host)[0].clone());
        assert_eq!(lacking, archives);
        let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
        let runners = "runner: [ubuntu-22.04, ubuntu-22.04-arm, macos-15-intel, macos-15]";
        assert!(workflow.contains(runners));
    }

    #[test]
    fn release_krew_gets_the_checksum_of_each_archive() {
        let sum_of = |place: usize| place.to_string().repeat(64);
        let sums: Vec<String> = HOSTS
            .iter()
            .zip(1..)
            .map(|(host, place)| format!("{}  {}\n", sum_of(place), files_of(host)[0]))
            .collect();
        let (text, lacking) = with_sums(&manifest(), &sums.concat());
        assert_eq!(lacking, Vec::<String>::new());
        for place in 1..=HOSTS.len() {
            let sum = format!("    sha256: \"{}\"\n", sum_of(place));
            assert_eq!(text.matches(&sum).count(), 1, "{text}");
        }
        assert!(
            !text.contains(&"0".repeat(64)) && !text.contains("The release writes"),
            "{text}"
        );
        let (text, lacking) = with_sums(&manifest(), &sums[1..].concat());
        assert_eq!(lacking, [files_of(HOSTS[0])[0].clone()]);
        assert_eq!(text.matches(&"0".repeat(64)).count(), 1, "{text}");
    }
}
