//! The Helm chart, and the manifests that Helm 4 renders from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{HelmBinaries, Program};

/// Files of `deploy/manifests` that are not rendered.
const WRITTEN_BY_HAND: [&str; 2] = ["kustomization.yaml", "replacements.yaml"];

/// The server that the manifests are rendered for.
const SERVER: [&str; 6] = [
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

/// The files of `helm template` for the release `belayer` in the namespace `belayer-system`.
///
/// # Errors
/// When Helm refuses the chart or the values.
pub(crate) fn render(helm: &Path, arguments: &[&str]) -> Result<Rendered> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(helm)
        .args(["template", "belayer"])
        .arg(chart())
        .args(["--namespace", "belayer-system"])
        .args(SERVER)
        .args(arguments)
        .arg("--output-dir")
        .arg(folder.path())
        // Plugins and settings of this user do not count.
        .env("HELM_CONFIG_HOME", folder.path().join("config"))
        .env("HELM_DATA_HOME", folder.path().join("data"))
        .env("HELM_CACHE_HOME", folder.path().join("cache"))
        .output()
        .context("start helm")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm template: {why}");
    Ok(Rendered(files(&folder.path().join("belayer/templates"))?))
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
    #[cfg(test)]
    fn text(&self) -> String {
        self.0.values().map(String::as_str).collect()
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

    /// H2: the namespace is nowhere but in the namespace's place.
    #[test]
    fn h2_nothing_names_the_default_namespace_in_another_one() {
        let Some(helm) = helm() else { return };
        let values = deploy().join("charts/manifests.yaml");
        let values = values.to_string_lossy();
        let everything = "networkPolicy.enabled=true,podMonitor.enabled=true,prometheusRule.enabled=true,\
                          dashboard.enabled=true,flowSchema.enabled=true";
        let arguments = [
            "--namespace",
            "ops",
            "--values",
            &values,
            "--set",
            everything,
        ];
        for program in Program::HELM {
            let text = render(&helm.path(program), &arguments).unwrap().text();
            assert!(!text.contains("belayer-system"), "{text}");
            assert!(text.contains("system:serviceaccount:ops:belayer"), "{text}");
            assert!(text.contains("resourceNames: [ops]"), "{text}");
        }
    }
}
