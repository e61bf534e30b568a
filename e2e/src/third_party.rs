//! Controllers of other projects, in `e2e/third-party`: installed from their registries into the cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::control_plane::{cache_dir, is_installed};
use crate::go;
use crate::output::Output;

/// Files of a folder of `e2e/third-party`, by name.
macro_rules! files {
    ($folder:literal: $($name:literal),+) => {
        &[$(($name, include_str!(concat!("../third-party/", $folder, "/", $name)))),+]
    };
}

/// A program of another project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThirdParty {
    /// client-go's example of a controller.
    SampleController,
    /// controller-runtime's examples for built-in kinds and for a custom resource.
    ControllerRuntime,
    /// A published operator with kube-rs.
    SimKube,
    /// A Python operator with kopf and kubernetes_asyncio.
    Kopf,
    /// A published operator with kopf and the client of Kubernetes' Python team.
    DevServers,
    /// An informer of JavaScript's client.
    JavaScript,
    /// A check of the status page in Chromium.
    Browser,
    /// Checks of this repository: zizmor for the workflows, Lua for health checks, schemas of Kubernetes.
    Lint,
    /// Checks of the alert rules.
    Promtool,
    /// Checks of the workflows.
    Actionlint,
    /// The judgement of objects in Flux and Helm.
    Kstatus,
}

impl ThirdParty {
    fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::SampleController => files!(".": "go.mod", "go.sum"),
            Self::ControllerRuntime => {
                files!("controller-runtime": "chaospods.yaml", "go.mod", "go.sum")
            }
            Self::SimKube => files!("simkube": "version", "crds.yaml"),
            Self::Kopf => {
                files!("kopf": "requirements.txt", "operator.py", "crd.yaml", "claim.yaml")
            }
            Self::DevServers => {
                files!("devservers": "requirements.txt", "crds.yaml", "objects.yaml")
            }
            Self::JavaScript => {
                files!("javascript": "package.json", "package-lock.json", "controller.mjs")
            }
            Self::Browser => files!("browser": "package.json", "package-lock.json", "page.mjs"),
            Self::Lint => files!("lint": "requirements.txt", "health.py", "validate.py"),
            Self::Promtool => files!("promtool": "go.mod", "go.sum"),
            Self::Actionlint => files!("actionlint": "go.mod", "go.sum"),
            Self::Kstatus => files!("kstatus": "go.mod", "go.sum", "main.go"),
        }
    }

    /// Whether the tools that install and run it are there. In continuous integration this is always true, so that a
    /// machine without them fails instead of testing nothing.
    pub(crate) fn is_available(self) -> bool {
        let runs = |program: &str| {
            let mut version = Command::new(program);
            version
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        };
        // Not on every machine of continuous integration.
        if self == Self::Browser {
            return runs("node") && runs("npm") && chromium().is_ok();
        }
        crate::is_ci()
            || match self {
                Self::SampleController
                | Self::ControllerRuntime
                | Self::Promtool
                | Self::Actionlint
                | Self::Kstatus => go::is_there(),
                Self::SimKube => runs("cargo"),
                Self::Kopf | Self::DevServers | Self::Lint => runs("python3"),
                Self::JavaScript | Self::Browser => runs("node") && runs("npm"),
            }
    }

    /// Its folder in the cache; installs it there the first time. The error contains the end of the output.
    pub(crate) fn installed(self) -> Result<PathBuf> {
        let texts: Vec<&str> = self.files().iter().map(|(_, text)| *text).collect();
        let folder = cache_dir()
            .join("third-party")
            .join(go::fingerprint(&texts));
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        // A concurrent installation waits for the first and uses its result.
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("wait for the installation")?;
        let done = folder.join("installed");
        if done.is_file() {
            return Ok(folder);
        }
        anstream::eprintln!("installing {self:?} into {}", folder.display());
        for (name, text) in self.files() {
            fs::write(folder.join(name), text)?;
        }
        run(&folder, self.steps())?;
        File::create(done)?;
        Ok(folder)
    }

    /// The shell script that installs it.
    fn steps(self) -> &'static str {
        match self {
            Self::SampleController => "go build -o controller k8s.io/sample-controller",
            Self::ControllerRuntime => {
                "examples=sigs.k8s.io/controller-runtime/examples
                go build -o . $examples/builtins $examples/crd"
            }
            Self::SimKube => {
                "version=$(cat version)
                cargo install --quiet --locked --debug --root=. --version=$version sk-ctrl"
            }
            // The tag leaves out ways to find what is scraped: most of the code.
            Self::Promtool => {
                "go build -trimpath -tags=remove_all_sd '-ldflags=-s -w' -o promtool \
                github.com/prometheus/prometheus/cmd/promtool"
            }
            Self::Actionlint => {
                "go build -trimpath '-ldflags=-s -w' -o actionlint \
                github.com/rhysd/actionlint/cmd/actionlint"
            }
            Self::Kstatus => "go build -trimpath -o kstatus .",
            Self::Kopf | Self::DevServers | Self::Lint => {
                "python3 -m venv venv
                venv/bin/pip install --quiet -r requirements.txt"
            }
            Self::JavaScript | Self::Browser => "npm ci --no-audit --no-fund --silent",
        }
    }
}

/// The program of an installed Chromium.
pub(crate) fn chromium() -> Result<&'static str> {
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let mut installed = programs.into_iter().filter(|name| is_installed(name));
    installed.next().context("Chromium is not installed")
}

fn run(folder: &Path, script: &str) -> Result<()> {
    let done = Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0")
        .output();
    let done = Output::from(done.context("start sh")?);
    let end: Vec<&str> = done.err.lines().rev().take(5).collect();
    let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
    ensure!(done.code == 0, "{script}: {end}");
    Ok(())
}

/// The folder of the sample controller's own manifests, in the Go module.
pub(crate) fn sample_manifests(installed: &Path) -> Result<PathBuf> {
    let listed = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/sample-controller"])
        .current_dir(installed)
        .output()
        .context("start go")?;
    let folder = String::from_utf8(listed.stdout).context("the module's folder")?;
    ensure!(
        listed.status.success() && !folder.trim().is_empty(),
        "go list names no folder"
    );
    Ok(Path::new(folder.trim()).join("artifacts/examples"))
}
