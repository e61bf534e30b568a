//! The Helm chart, and the manifests that Helm 4 renders from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{HelmBinaries, Program};

/// Files of `deploy/manifests` that are not rendered.
const WRITTEN_BY_HAND: [&str; 2] = ["kustomization.yaml", "replacements.yaml"];

/// What a server serves, as far as the chart asks.
pub(crate) type Server<'a> = &'a [&'a str];

/// The server that the manifests are rendered for.
const SERVER: Server<'static> = &[
    "--kube-version",
    "1.36.0",
    "--api-versions",
    "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
    "--api-versions",
    "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
];

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The chart.
pub(crate) fn chart() -> PathBuf {
    deploy().join("charts/belayer")
}

/// The text of each rendered file, by its path in the folder of the manifests.
pub(crate) struct Rendered(BTreeMap<PathBuf, String>);

/// Renders the files of `deploy/manifests`.
///
/// # Errors
/// When Helm refuses the chart.
pub(crate) fn manifests(helm: &HelmBinaries) -> Result<Rendered> {
    let values = deploy().join("charts/manifests.yaml");
    let values = values.to_string_lossy();
    let arguments = ["--no-hooks", "--skip-tests", "--values", &values];
    render(&helm.path(Program::Helm4), &arguments)
}

/// Options that the manifests leave out.
const OPTIONS: &str = "networkPolicy.enabled=true,podMonitor.enabled=true,prometheusRule.enabled=true,\
                       dashboard.enabled=true,flowSchema.enabled=true,resourceQuota.enabled=true";

/// Every object that the chart can render for a version of Kubernetes such as `1.34`, with its hooks, as one text.
///
/// # Errors
/// When Helm refuses the chart.
pub(crate) fn everything(helm: &HelmBinaries, version: &str) -> Result<String> {
    let values = deploy().join("charts/manifests.yaml");
    let values = values.to_string_lossy();
    let with = format!("{OPTIONS},drainOnUninstall.enabled=true");
    let arguments = ["--values", &values, "--set", &with];
    let version = format!("{version}.0");
    let server: Server<'_> = &["--kube-version", &version];
    let rendered = render_for(&helm.path(Program::Helm4), &chart(), server, &arguments)?;
    Ok(rendered.text())
}

/// All of `deploy/manifests` as one text.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn rendered_manifests() -> Result<String> {
    Ok(Rendered(Rendered::current()?).text())
}

/// The files of `helm template` for the release `belayer` in the namespace `belayer-system`.
///
/// # Errors
/// When Helm refuses the chart or the values.
pub(crate) fn render(helm: &Path, arguments: &[&str]) -> Result<Rendered> {
    render_for(helm, &chart(), SERVER, arguments)
}

/// The same of another chart or archive, for another server.
fn render_for(
    helm: &Path,
    chart: &Path,
    server: Server<'_>,
    arguments: &[&str],
) -> Result<Rendered> {
    let folder = tempfile::tempdir()?;
    let mut template = alone(helm, folder.path());
    template
        .args(["template", "belayer"])
        .arg(chart)
        .args(["--namespace", "belayer-system"])
        .args(server)
        .args(arguments)
        .arg("--output-dir")
        .arg(folder.path());
    output(&mut template)?;
    Ok(Rendered(files(&folder.path().join("belayer/templates"))?))
}

/// Helm without plugins and settings of this user.
fn alone(helm: &Path, folder: &Path) -> Command {
    let mut command = Command::new(helm);
    command
        .env("HELM_CONFIG_HOME", folder.join("config"))
        .env("HELM_DATA_HOME", folder.join("data"))
        .env("HELM_CACHE_HOME", folder.join("cache"));
    command
}

/// Standard output of a command that must succeed.
fn output(helm: &mut Command) -> Result<String> {
    let output = helm.output().context("start helm")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, why) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "helm: {why}{printed}");
    Ok(printed)
}

/// Checks a packed chart: both versions of Helm find no mistake in it, and it renders what the chart's folder does.
///
/// # Errors
/// When Helm refuses it, or it differs.
pub(crate) fn check_archive(helm: &HelmBinaries, archive: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for program in Program::HELM {
        let helm = helm.path(program);
        output(
            alone(&helm, folder.path())
                .args(["lint", "--strict"])
                .arg(archive),
        )?;
        let packed = render_for(&helm, archive, SERVER, &[])?;
        ensure!(
            packed.0 == render(&helm, &[])?.0,
            "{program}: the archive {} renders other objects than the chart",
            archive.display()
        );
    }
    Ok(())
}

/// All YAML files below a folder.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml") {
                let text = fs::read_to_string(&path)?;
                found.insert(path.strip_prefix(folder)?.to_owned(), text);
            }
        }
    }
    Ok(found)
}

impl Rendered {
    /// All documents as one text.
    fn text(&self) -> String {
        let documents = self.0.values().map(|text| format!("---\n{text}\n"));
        documents.collect()
    }

    /// The files that are rendered now.
    fn current() -> Result<BTreeMap<PathBuf, String>> {
        let mut current = files(&deploy().join("manifests"))?;
        current.retain(|path, _| {
            let name = path.file_name().unwrap_or_default();
            WRITTEN_BY_HAND.iter().all(|kept| name != *kept)
        });
        Ok(current)
    }

    /// The files that differ from those in `deploy/manifests`, in either.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn outdated(&self) -> Result<Vec<PathBuf>> {
        let current = Self::current()?;
        let all: BTreeSet<&PathBuf> = current.keys().chain(self.0.keys()).collect();
        let differs = |path: &&&PathBuf| current.get(**path) != self.0.get(**path);
        Ok(all
            .iter()
            .filter(differs)
            .map(|path| (*path).clone())
            .collect())
    }

    /// Writes the outdated files, and removes those that are rendered no more.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn write(&self) -> Result<()> {
        for path in self.outdated()? {
            let file = deploy().join("manifests").join(&path);
            match self.0.get(&path) {
                None => fs::remove_file(&file)?,
                Some(text) => {
                    fs::create_dir_all(file.parent().unwrap_or(&file))?;
                    fs::write(&file, text)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without Helm in the cache it is only built where everything must run.
    fn helm() -> Option<HelmBinaries> {
        let wanted = HelmBinaries::are_built() || crate::is_ci() || is_renewed();
        wanted.then(|| HelmBinaries::find_or_build().unwrap())
    }

    fn is_renewed() -> bool {
        std::env::var_os("UPDATE_SNAPSHOTS").is_some()
    }

    /// `cargo xtask manifests` renews them.
    #[test]
    fn the_manifests_are_rendered_from_the_chart() {
        let Some(helm) = helm() else { return };
        let rendered = manifests(&helm).unwrap();
        if is_renewed() {
            rendered.write().unwrap();
        }
        assert_eq!(rendered.outdated().unwrap(), Vec::<PathBuf>::new());
    }

    /// Helm 3 and 4 differ in empty lines only.
    #[test]
    fn both_versions_of_helm_render_the_same() {
        let Some(helm) = helm() else { return };
        let lines = |program| {
            let rendered = render(&helm.path(program), &[]).unwrap();
            let text = rendered.text();
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines(Program::Helm3), lines(Program::Helm4));
    }

    /// A release packs the chart: an archive without one of its files is refused.
    #[test]
    fn the_archive_is_checked_by_both_versions_of_helm() {
        let Some(helm) = helm() else { return };
        let folder = tempfile::tempdir().unwrap();
        let pack = |name: &str, without: &str| {
            let archive = folder.path().join(name);
            let packed = Command::new("tar")
                .args(["--create", "--gzip", "--exclude", without, "--file"])
                .arg(&archive)
                .arg("--directory")
                .arg(deploy().join("charts"))
                .arg("belayer")
                .status();
            assert!(packed.unwrap().success());
            check_archive(&helm, &archive)
        };
        pack("whole.tgz", "nothing").unwrap();
        let refused = pack("less.tgz", "rbac-core.yaml").unwrap_err();
        assert!(refused.to_string().contains("other objects"), "{refused}");
        assert!(pack("bad.tgz", "_helpers.tpl").is_err());
    }

    /// The policies that add holds exist from 1.36 on; what limits Belayer stays.
    #[test]
    fn an_older_server_gets_no_mutating_policy() {
        let Some(helm) = helm() else { return };
        let chart = chart();
        let old: Server<'_> = &["--kube-version", "1.35.0"];
        for program in Program::HELM {
            let helm = helm.path(program);
            let count = |server, kind: &str| {
                let text = render_for(&helm, &chart, server, &[]).unwrap().text();
                text.matches(&format!("\nkind: {kind}\n")).count()
            };
            assert_eq!(count(old, "MutatingAdmissionPolicy"), 0);
            assert_eq!(count(old, "MutatingAdmissionPolicyBinding"), 0);
            assert!(count(SERVER, "MutatingAdmissionPolicy") > 1);
            let limits = count(SERVER, "ValidatingAdmissionPolicy");
            assert_eq!(count(old, "ValidatingAdmissionPolicy"), limits);
        }
    }

    /// A copy of the chart in which the notes are an object: `helm template` does not print them.
    fn with_notes_as_object(folder: &Path) -> PathBuf {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(chart())
            .arg(folder)
            .status();
        assert!(copied.unwrap().success());
        let copy = folder.join("belayer");
        fs::rename(copy.join("templates/NOTES.txt"), copy.join("notes.txt")).unwrap();
        let object = "kind: Notes\nnotes: {{ tpl (.Files.Get \"notes.txt\") . | toJson }}\n";
        fs::write(copy.join("templates/notes.yaml"), object).unwrap();
        copy
    }

    #[test]
    fn the_notes_tell_what_the_server_lacks() {
        let Some(helm) = helm() else { return };
        let folder = tempfile::tempdir().unwrap();
        let chart = with_notes_as_object(folder.path());
        let old: Server<'_> = &["--kube-version", "1.35.0"];
        for program in Program::HELM {
            let notes = |server, arguments: &[&str]| {
                let rendered = render_for(&helm.path(program), &chart, server, arguments).unwrap();
                rendered.0[Path::new("notes.yaml")].clone()
            };
            let lacks = "This server has no MutatingAdmissionPolicies (Kubernetes 1.36)";
            assert!(notes(old, &[]).contains(lacks));
            let whole = notes(SERVER, &[]);
            assert!(!whole.contains(lacks), "{whole}");
            assert!(whole.contains("does not exist. Build one"), "{whole}");
            assert!(whole.contains("first runs `belayer drain`"), "{whole}");
            let named = ["--set", "image.repository=registry.example.com/belayer"];
            assert!(!notes(SERVER, &named).contains("does not exist"));
            let by_hand = ["--set", "drainOnUninstall.enabled=false"];
            assert!(notes(SERVER, &by_hand).contains("run `belayer drain`: it removes"));
        }
    }

    /// Values that the chart must refuse, and what Helm says.
    #[test]
    fn wrong_values_are_refused_by_name() {
        let Some(helm) = helm() else { return };
        let off = "controllers.podFinalizer.enabled=false,controllers.workflowFinalizer.enabled=false,\
                   controllers.pvcProtection.enabled=false";
        for (values, named) in [
            ("replica=3", "replica"),
            ("config.podFinaliser.profiles=x", "podFinaliser"),
            ("controllers.podFinaliser.enabled=true", "podFinaliser"),
            (off, "no controller is enabled"),
        ] {
            for program in Program::HELM {
                let refused = render(&helm.path(program), &["--set", values]);
                let why = refused.err().map(|why| why.to_string()).unwrap_or_default();
                assert!(why.contains(named), "{program} {values}: {why}");
            }
        }
    }

    /// H2: the namespace is nowhere but in the namespace's place.
    #[test]
    fn h2_nothing_names_the_default_namespace_in_another_one() {
        let Some(helm) = helm() else { return };
        let values = deploy().join("charts/manifests.yaml");
        let values = values.to_string_lossy();
        let arguments = ["--namespace", "ops", "--values", &values, "--set", OPTIONS];
        for program in Program::HELM {
            let text = render(&helm.path(program), &arguments).unwrap().text();
            assert!(!text.contains("belayer-system"), "{text}");
            assert!(text.contains("system:serviceaccount:ops:belayer"), "{text}");
            assert!(text.contains("resourceNames: [ops]"), "{text}");
        }
    }
}
