//! Controllers of other projects, in `e2e/third-party`: installed from their registries into the cache.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::control_plane::{cache_dir, is_installed};
use crate::go;

const GO: [(&str, &str); 2] = [
    ("go.mod", include_str!("../third-party/go.mod")),
    ("go.sum", include_str!("../third-party/go.sum")),
];
const PROMTOOL: [(&str, &str); 2] = [
    ("go.mod", include_str!("../third-party/promtool/go.mod")),
    ("go.sum", include_str!("../third-party/promtool/go.sum")),
];
const ACTIONLINT: [(&str, &str); 2] = [
    ("go.mod", include_str!("../third-party/actionlint/go.mod")),
    ("go.sum", include_str!("../third-party/actionlint/go.sum")),
];
const KSTATUS: [(&str, &str); 3] = [
    ("go.mod", include_str!("../third-party/kstatus/go.mod")),
    ("go.sum", include_str!("../third-party/kstatus/go.sum")),
    ("main.go", include_str!("../third-party/kstatus/main.go")),
];
const CONTROLLER_RUNTIME: [(&str, &str); 3] = [
    (
        "chaospods.yaml",
        include_str!("../third-party/controller-runtime/chaospods.yaml"),
    ),
    (
        "go.mod",
        include_str!("../third-party/controller-runtime/go.mod"),
    ),
    (
        "go.sum",
        include_str!("../third-party/controller-runtime/go.sum"),
    ),
];
const SIM_KUBE: [(&str, &str); 2] = [
    ("version", include_str!("../third-party/simkube/version")),
    (
        "crds.yaml",
        include_str!("../third-party/simkube/crds.yaml"),
    ),
];
const KOPF: [(&str, &str); 4] = [
    (
        "requirements.txt",
        include_str!("../third-party/kopf/requirements.txt"),
    ),
    (
        "operator.py",
        include_str!("../third-party/kopf/operator.py"),
    ),
    ("crd.yaml", include_str!("../third-party/kopf/crd.yaml")),
    ("claim.yaml", include_str!("../third-party/kopf/claim.yaml")),
];
const DEV_SERVERS: [(&str, &str); 3] = [
    (
        "requirements.txt",
        include_str!("../third-party/devservers/requirements.txt"),
    ),
    (
        "crds.yaml",
        include_str!("../third-party/devservers/crds.yaml"),
    ),
    (
        "objects.yaml",
        include_str!("../third-party/devservers/objects.yaml"),
    ),
];
const LINT: [(&str, &str); 3] = [
    (
        "requirements.txt",
        include_str!("../third-party/lint/requirements.txt"),
    ),
    ("health.py", include_str!("../third-party/lint/health.py")),
    (
        "validate.py",
        include_str!("../third-party/lint/validate.py"),
    ),
];
const JAVASCRIPT: [(&str, &str); 3] = [
    (
        "package.json",
        include_str!("../third-party/javascript/package.json"),
    ),
    (
        "package-lock.json",
        include_str!("../third-party/javascript/package-lock.json"),
    ),
    (
        "controller.mjs",
        include_str!("../third-party/javascript/controller.mjs"),
    ),
];

const BROWSER: [(&str, &str); 3] = [
    (
        "package.json",
        include_str!("../third-party/browser/package.json"),
    ),
    (
        "package-lock.json",
        include_str!("../third-party/browser/package-lock.json"),
    ),
    ("page.mjs", include_str!("../third-party/browser/page.mjs")),
];

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
            Self::SampleController => &GO,
            Self::ControllerRuntime => &CONTROLLER_RUNTIME,
            Self::SimKube => &SIM_KUBE,
            Self::Kopf => &KOPF,
            Self::DevServers => &DEV_SERVERS,
            Self::JavaScript => &JAVASCRIPT,
            Self::Browser => &BROWSER,
            Self::Lint => &LINT,
            Self::Promtool => &PROMTOOL,
            Self::Actionlint => &ACTIONLINT,
            Self::Kstatus => &KSTATUS,
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
        for arguments in self.steps() {
            run(&folder, arguments)?;
        }
        File::create(done)?;
        Ok(folder)
    }

    fn steps(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::SampleController => &[&[
                "go",
                "build",
                "-o",
                "controller",
                "k8s.io/sample-controller",
            ]],
            Self::ControllerRuntime => &[&[
                "go",
                "build",
                "-o",
                ".",
                "sigs.k8s.io/controller-runtime/examples/builtins",
                "sigs.k8s.io/controller-runtime/examples/crd",
            ]],
            Self::SimKube => &[&[
                "sh",
                "-c",
                "exec cargo install --quiet --locked --debug --root=. --version=$(cat version) sk-ctrl",
            ]],
            Self::Promtool => &[&[
                "go",
                "build",
                "-trimpath",
                // Ways to find what is scraped: most of the code.
                "-tags=remove_all_sd",
                "-ldflags=-s -w",
                "-o",
                "promtool",
                "github.com/prometheus/prometheus/cmd/promtool",
            ]],
            Self::Actionlint => &[&[
                "go",
                "build",
                "-trimpath",
                "-ldflags=-s -w",
                "-o",
                "actionlint",
                "github.com/rhysd/actionlint/cmd/actionlint",
            ]],
            Self::Kstatus => &[&["go", "build", "-trimpath", "-o", "kstatus", "."]],
            Self::Kopf | Self::DevServers | Self::Lint => &[
                &["python3", "-m", "venv", "venv"],
                &[
                    "venv/bin/pip",
                    "install",
                    "--quiet",
                    "-r",
                    "requirements.txt",
                ],
            ],
            Self::JavaScript | Self::Browser => {
                &[&["npm", "ci", "--no-audit", "--no-fund", "--silent"]]
            }
        }
    }
}

/// The program of an installed Chromium.
pub(crate) fn chromium() -> Result<&'static str> {
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let mut installed = programs.into_iter().filter(|name| is_installed(name));
    installed.next().context("Chromium is not installed")
}

fn run(folder: &Path, arguments: &[&str]) -> Result<()> {
    let (program, rest) = arguments.split_first().context("no program")?;
    // A path is relative to the folder, a name is searched.
    let program = match program.contains('/') {
        true => folder.join(program),
        false => PathBuf::from(program),
    };
    let done = Command::new(&program)
        .args(rest)
        .current_dir(folder)
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0")
        .output();
    let done = done.with_context(|| format!("start {}", program.display()))?;
    let said = String::from_utf8_lossy(&done.stderr);
    let end: Vec<&str> = said.lines().rev().take(5).collect();
    let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
    ensure!(done.status.success(), "{}: {end}", arguments.join(" "));
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
