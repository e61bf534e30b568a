//! Which crates depend on which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{root, visit};

/// The workspace packages that each package depends on: normal dependencies, and those of tests.
struct Edges {
    normal: BTreeMap<String, BTreeSet<String>>,
    dev: BTreeMap<String, BTreeSet<String>>,
}

/// The workspace's packages, as cargo reports them.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn edges() -> Edges {
    let packages = packages();
    let members: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let of = |wanted: Option<&str>| {
        let dependencies = |package: &serde_json::Value| {
            let all = package["dependencies"].as_array().unwrap();
            let fitting = all
                .iter()
                .filter(|dependency| dependency["kind"].as_str() == wanted);
            let names = fitting.map(|dependency| dependency["name"].as_str().unwrap());
            names
                .filter(|name| members.contains(name))
                .map(str::to_owned)
                .collect()
        };
        packages
            .iter()
            .map(|p| (p["name"].as_str().unwrap().to_owned(), dependencies(p)))
            .collect()
    };
    Edges {
        normal: of(None),
        dev: of(Some("dev")),
    }
}

/// The allowed dependencies. All others are forbidden.
const ALLOWED: &[(&str, &[&str])] = &[
    ("belayer-metrics", &[]),
    ("belayer-core", &["belayer-metrics"]),
    ("belayer-holds", &["belayer-core", "belayer-metrics"]),
    (
        "belayer-controller",
        &[
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-metrics",
        ],
    ),
    ("belayer-lifecycles", &["belayer-core", "belayer-metrics"]),
    (
        "belayer-pod-finalizer",
        &[
            "belayer-controller",
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-metrics",
        ],
    ),
    (
        "belayer-inspect",
        &["belayer-core", "belayer-holds", "belayer-metrics"],
    ),
    // drain uses pvc-protection's definition of a PVC's users and pod-recreation's record type, whether
    // these controllers run or not.
    (
        "belayer-drain",
        &[
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-pod-recreation",
            "belayer-pvc-protection",
        ],
    ),
    (
        "belayer-node-agent",
        &[
            "belayer-core",
            "belayer-holds",
            "belayer-lifecycles",
            "belayer-metrics",
        ],
    ),
    (
        "belayer-pod-recreation",
        &[
            "belayer-controller",
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-metrics",
        ],
    ),
    (
        "belayer-pvc-protection",
        &[
            "belayer-controller",
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-metrics",
        ],
    ),
    (
        "belayer-workflow-finalizer",
        &[
            "belayer-controller",
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-metrics",
        ],
    ),
    ("belayer-sandbox", &[]),
    ("belayer-workload", &["belayer-sandbox"]),
    (
        "belayer",
        &[
            "belayer-controller",
            "belayer-core",
            "belayer-holds",
            "belayer-drain",
            "belayer-inspect",
            "belayer-metrics",
            "belayer-node-agent",
            "belayer-pod-finalizer",
            "belayer-pod-recreation",
            "belayer-pvc-protection",
            "belayer-workflow-finalizer",
        ],
    ),
    (
        "belayer-checker",
        &["belayer-holds", "belayer-sandbox", "belayer-workload"],
    ),
    (
        "belayer-demo",
        &[
            "belayer",
            "belayer-checker",
            "belayer-core",
            "belayer-holds",
            "belayer-inspect",
            "belayer-pod-finalizer",
            "belayer-pod-recreation",
            "belayer-pvc-protection",
            "belayer-sandbox",
            "belayer-workflow-finalizer",
            "belayer-workload",
        ],
    ),
    (
        "belayer-simulator",
        &[
            "belayer",
            "belayer-checker",
            "belayer-core",
            "belayer-demo",
            "belayer-drain",
            "belayer-holds",
            "belayer-inspect",
            "belayer-node-agent",
            "belayer-pod-finalizer",
            "belayer-pod-recreation",
            "belayer-pvc-protection",
            "belayer-sandbox",
            "belayer-workflow-finalizer",
            "belayer-workload",
        ],
    ),
    (
        "belayer-models",
        // Controllers, for the decisions that are explored.
        &[
            "belayer-core",
            "belayer-drain",
            "belayer-holds",
            "belayer-pod-finalizer",
            "belayer-pod-recreation",
            "belayer-pvc-protection",
        ],
    ),
    (
        "belayer-subject",
        // Controllers, for the decisions whose instructions are counted.
        &[
            "belayer-core",
            "belayer-holds",
            "belayer-pod-finalizer",
            "belayer-pod-recreation",
            "belayer-pvc-protection",
            "belayer-workflow-finalizer",
        ],
    ),
    (
        "belayer-e2e",
        &[
            "belayer-core",
            "belayer-holds",
            "belayer-image",
            "belayer-sandbox",
            // For the model of Argo Workflows.
            "belayer-workload",
        ],
    ),
    (
        "belayer-bench",
        &[
            "belayer-core",
            "belayer-holds",
            "belayer-e2e",
            "belayer-metrics",
            "belayer-subject",
        ],
    ),
    ("belayer-image", &[]),
    ("xtask", &["belayer-image"]),
];

#[test]
fn only_the_allowed_edges_between_crates_exist() {
    let edges = edges();
    for (package, dependencies) in &edges.normal {
        let allowed = ALLOWED.iter().find(|(name, _)| name == package);
        let (_, allowed) = allowed
            .unwrap_or_else(|| panic!("{package} is new: add its allowed dependencies to ALLOWED"));
        for dependency in dependencies {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{package} must not depend on {dependency}"
            );
        }
    }
    for (package, dependencies) in &edges.dev {
        let controller_in_sandbox = package == "belayer-sandbox" && !dependencies.is_empty();
        assert!(
            !controller_in_sandbox,
            "the sandbox's tests must not depend on workspace crates: {dependencies:?}"
        );
    }
}

/// The picture in ARCHITECTURE.md is made of the manifests: `UPDATE_SNAPSHOTS=1 cargo test --workspace --test tidy`
/// draws it anew.
#[test]
fn the_diagram_of_the_crates_is_generated() {
    const BEGIN: &str = "<!-- crates: made from the manifests -->\n";
    const END: &str = "<!-- end of crates -->\n";
    let path = root().join("ARCHITECTURE.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}{}{END}{after}", drawing(&edges().normal));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            page == wanted,
            "the diagram in ARCHITECTURE.md is outdated: run with UPDATE_SNAPSHOTS=1"
        );
    }
}

/// The diagram of dependencies, without transitive ones.
fn drawing(edges: &BTreeMap<String, BTreeSet<String>>) -> String {
    let short = |name: &str| match name.strip_prefix("belayer-") {
        Some(short) => short.to_owned(),
        None => name.to_owned(),
    };
    let mut text = String::from("```mermaid\ngraph TD\n");
    for (from, direct) in edges {
        for to in direct {
            let others = direct.iter().filter(|other| *other != to);
            if !others.clone().any(|other| reaches(edges, other, to)) {
                text.push_str(&format!("  {} --> {}\n", short(from), short(to)));
            }
        }
    }
    text.push_str("```\n");
    text
}

fn reaches(edges: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    from == to || edges[from].iter().any(|next| reaches(edges, next, to))
}

/// The shipped binary contains no test crates.
#[test]
fn the_shipped_binary_contains_neither_sandbox_nor_demo() {
    let edges = edges();
    let mut shipped = BTreeSet::new();
    let mut rest = vec!["belayer"];
    while let Some(package) = rest.pop() {
        if shipped.insert(package) {
            rest.extend(edges.normal[package].iter().map(String::as_str));
        }
    }
    assert!(shipped.contains("belayer-core"), "{shipped:?}");
    for package in [
        "belayer-sandbox",
        "belayer-workload",
        "belayer-checker",
        "belayer-demo",
        "belayer-models",
        "belayer-simulator",
        "belayer-subject",
        "belayer-e2e",
        "belayer-bench",
    ] {
        assert!(
            !shipped.contains(package),
            "belayer is built with {package}"
        );
    }
}

/// Row *core as a library*: other controllers use these crates, so nothing in them has a name of this one.
#[test]
fn crates_core_as_a_library_has_no_name_of_belayers() {
    let packages = packages();
    let crate_names: Vec<String> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .filter(|name| name.contains('-'))
        .flat_map(|name| [name.to_owned(), name.replace('-', "_")])
        .chain(["github.com/belayer/belayer".to_owned()])
        .collect();
    for folder in ["core/src", "core/examples", "core/benches"] {
        visit(&root().join("crates").join(folder), "rs", &mut |file| {
            let text = fs::read_to_string(file).unwrap();
            let text = crate_names
                .iter()
                .fold(text, |text, name| text.replace(name, ""));
            let found = text
                .lines()
                .find(|line| line.to_lowercase().contains("belayer"));
            assert_eq!(found, None, "{}", file.display());
        });
    }
    for folder in ["lifecycles/src", "lifecycles/examples"] {
        visit(&root().join("crates").join(folder), "rs", &mut |file| {
            let text = fs::read_to_string(file).unwrap();
            assert!(!text.contains("belayer.dev"), "{}", file.display());
        });
    }
}

/// Row *publishable crates* (H4): the final program chooses the Kubernetes version of `k8s-openapi`; two choices do
/// not compile. Documentation is built without a program.
#[test]
fn h4_no_library_chooses_a_version_of_kubernetes() {
    const PROGRAMS: &[&str] = &["belayer", "belayer-demo"];
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let manifest = package["manifest_path"].as_str().unwrap();
        if !Path::new(manifest).starts_with(root().join("crates")) || PROGRAMS.contains(&name) {
            continue;
        }
        let dependencies = package["dependencies"].as_array().unwrap();
        let chooses = |dependency: &&serde_json::Value| {
            let features = dependency["features"].as_array().unwrap();
            let mut features = features.iter().filter_map(|feature| feature.as_str());
            dependency["name"] == "k8s-openapi" && features.any(|name| name.starts_with("v1_"))
        };
        let choices: Vec<_> = dependencies.iter().filter(chooses).collect();
        for choice in &choices {
            // The program in the sandbox's crate has a feature of its own.
            let allowed = choice["kind"] == "dev" || choice["optional"] == true;
            assert!(
                allowed,
                "{name} forces a version of Kubernetes on its users"
            );
        }
        let arguments = &package["metadata"]["docs"]["rs"]["cargo-args"];
        assert!(
            choices.is_empty()
                || arguments
                    .to_string()
                    .contains("K8S_OPENAPI_ENABLED_VERSION"),
            "{name}: the documentation cannot be built without a version"
        );
    }
}

/// Row *proof*: a program outside the workspace uses each library, or its README says that it is a part of Belayer.
#[test]
fn crates_every_library_is_used_outside_the_workspace_or_is_a_part_of_belayer() {
    const PROGRAMS: &[&str] = &["belayer"];
    let mut outside = String::new();
    visit(&root().join("e2e/external"), "toml", &mut |file| {
        outside.push_str(&fs::read_to_string(file).unwrap());
    });
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if manifest.contains("publish = false") || PROGRAMS.contains(&name) {
            continue;
        }
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        let words: Vec<_> = readme.split_whitespace().collect();
        let is_part = words
            .join(" ")
            .contains("part of Belayer and not meant to be used alone");
        let is_used = outside.contains(&format!("crates/{name}\""));
        assert!(
            is_part != is_used && is_part == manifest.contains("\"Part of Belayer: "),
            "{name}: a part of Belayer {is_part}, used by a program of e2e/external {is_used}"
        );
    }
}

/// These programs are built late in a test run, and with `--locked`: a new dependency of a crate has to be in their lock
/// file as well.
#[test]
fn the_lock_file_of_the_programs_outside_knows_the_dependencies_of_each_crate() {
    const LOCK: &str = "e2e/external/Cargo.lock";
    let lock = fs::read_to_string(root().join(LOCK)).unwrap();
    let locked: BTreeMap<&str, &str> = lock
        .split("[[package]]\nname = \"")
        .skip(1)
        .map(|package| package.split_once('"').unwrap())
        .collect();
    let mut checked = 0;
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some(entry) = locked.get(name) else {
            continue;
        };
        checked += 1;
        for dependency in package["dependencies"].as_array().unwrap() {
            let needed = dependency["name"].as_str().unwrap();
            // With a version if the file has several of this crate.
            let known =
                entry.contains(&format!("\"{needed}\"")) || entry.contains(&format!("\"{needed} "));
            assert!(
                known || dependency["kind"] == "dev" || dependency["optional"] == true,
                "{LOCK}: {name} needs {needed}; run `cargo metadata --manifest-path e2e/external/Cargo.toml`"
            );
        }
    }
    assert!(checked > 5, "{checked} crates in {LOCK}");
}

/// Each dependency is named in the code of its package, or in its README, whose examples are tests. `k8s-openapi` need not be: it is
/// there so that the tests of a crate select a version.
#[test]
fn every_dependency_is_used() {
    let packages = packages();
    let folder = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.parent().unwrap().to_owned()
    };
    let folders: BTreeSet<_> = packages.iter().map(folder).collect();
    let mut unused = Vec::new();
    for package in &packages {
        let (name, home) = (package["name"].as_str().unwrap(), folder(package));
        let mut words = BTreeSet::new();
        let mut read = |file: &Path| {
            // A package may be below another one.
            let nearest = file.ancestors().find(|above| folders.contains(*above));
            if nearest == Some(&*home) {
                let text = fs::read_to_string(file).unwrap();
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                words.extend(text.split(|c| !is_part(c)).map(str::to_owned));
            }
        };
        visit(&home, "rs", &mut read);
        visit(&home, "md", &mut read);
        for dependency in package["dependencies"].as_array().unwrap() {
            let rename = dependency["rename"].as_str();
            let dependency = rename.unwrap_or_else(|| dependency["name"].as_str().unwrap());
            if dependency != "k8s-openapi" && !words.contains(&dependency.replace('-', "_")) {
                unused.push(format!("{name}: {dependency}"));
            }
        }
    }
    assert!(unused.is_empty(), "{unused:#?}");
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let shared = workspace.split("[workspace.dependencies]").nth(1).unwrap();
    let shared = shared.split("\n[").next().unwrap();
    let used: BTreeSet<&str> = packages
        .iter()
        .flat_map(|package| package["dependencies"].as_array().unwrap())
        .map(|dependency| dependency["name"].as_str().unwrap())
        .collect();
    let names = shared.lines().filter_map(|line| line.split_once(" ="));
    let rest: Vec<&str> = names
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with('#') && !used.contains(name))
        .collect();
    assert!(rest.is_empty(), "{rest:#?}");
}
