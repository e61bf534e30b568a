//! The Helm chart, and the manifests that Helm 4 renders from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{HelmBinaries, Program};
use crate::output::Output;

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
pub(crate) fn manifests(helm: &HelmBinaries) -> Result<Rendered> {
    let values = deploy().join("charts/manifests.yaml");
    let values = values.to_string_lossy();
    let arguments = ["--no-hooks", "--skip-tests", "--values", &values];
    render(&helm.path(Program::Helm4), &arguments)
}

/// Options that the manifests leave out.
const OPTIONS: &str = "networkPolicy.enabled=true,podMonitor.enabled=true,prometheusRule.enabled=true,\
                       dashboard.enabled=true,flowSchema.enabled=true,resourceQuota.enabled=true";

/// Values that nothing else sets.
fn all_values() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/chart-all-values.yaml")
}

/// Every object that the chart can render for a version of Kubernetes such as `1.34`, with its hooks, as one text.
pub(crate) fn everything(helm: &HelmBinaries, version: &str) -> Result<String> {
    let values = deploy().join("charts/manifests.yaml");
    let values = values.to_string_lossy();
    let with = format!("{OPTIONS},drainOnUninstall.enabled=true");
    let more = all_values();
    let more = more.to_string_lossy();
    let arguments = ["--values", &values, "--values", &more, "--set", &with];
    let version = format!("{version}.0");
    let server: Server<'_> = &["--kube-version", &version];
    let rendered = render_for(&helm.path(Program::Helm4), &chart(), server, &arguments)?;
    Ok(rendered.text())
}

/// All of `deploy/manifests` as one text.
pub(crate) fn rendered_manifests() -> Result<String> {
    Ok(Rendered(Rendered::current()?).text())
}

/// The files of `helm template` for the release `belayer` in the namespace `belayer-system`.
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
    let output = Output::from(helm.output().context("start helm")?);
    Ok(output.success()?.out)
}

/// Checks a packed chart: both versions of Helm find no mistake in it, and it renders what the chart's folder does, with
/// another repository of the image if one is given.
pub(crate) fn check_archive(
    helm: &HelmBinaries,
    archive: &Path,
    image_repository: Option<&str>,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let named = image_repository.map(|name| format!("image.repository={name}"));
    let set = named.as_deref().map(|named| ["--set", named]);
    let arguments = set.as_ref().map_or(&[][..], |set| &set[..]);
    for program in Program::HELM {
        let helm = helm.path(program);
        output(
            alone(&helm, folder.path())
                .args(["lint", "--strict"])
                .arg(archive),
        )?;
        let packed = render_for(&helm, archive, SERVER, &[])?;
        ensure!(
            packed.0 == render(&helm, arguments)?.0,
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
mod tests;
