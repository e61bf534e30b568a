//! Rules of what is installed: `deploy/` and the pages that describe it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{root, visit};

/// The files in which a user finds the name of an image.
fn installed() -> Vec<PathBuf> {
    let mut files = vec![root().join("README.md")];
    for (folder, ending) in [
        ("deploy", "yaml"),
        ("deploy", "json"),
        ("deploy", "tpl"),
        ("deploy", "txt"),
        ("docs/src", "md"),
    ] {
        visit(&root().join(folder), ending, &mut |file| {
            files.push(file.to_owned());
        });
    }
    files
}

/// The names of images in a line: values of `image:` and `repository:`, and every name of Belayer's own.
fn images(line: &str) -> Vec<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || "._-:/@".contains(c);
    let mut found = Vec::new();
    let plain = line.trim().trim_start_matches("- ");
    for key in ["image: ", "repository: "] {
        let value = plain
            .strip_prefix(key)
            .map(|value| value.trim_matches(['"', '\'']));
        found.extend(value.filter(|value| value.starts_with(word)));
    }
    for (at, own) in line.match_indices("belayer/belayer") {
        let start = line[..at]
            .rfind(|c| !word(c))
            .map_or(0, |before| before + 1);
        let end = at + own.len();
        if !line[end..].starts_with(word) || line[end..].starts_with(':') {
            found.push(line[start..end].trim_start_matches("https://"));
        }
    }
    found
}

/// A container runtime reads a name without a registry as one of a public registry.
fn has_registry(image: &str) -> bool {
    let Some((registry, _)) = image.split_once('/') else {
        return false;
    };
    registry.contains(['.', ':']) || registry == "REGISTRY"
}

/// H1: who owns a short name on a public registry would get the permissions of Belayer's account in the cluster of
/// every reader.
#[test]
fn h1_every_image_has_a_registry() {
    assert!(!has_registry("belayer/belayer:0.1.0") && !has_registry("busybox"));
    let mut seen = 0;
    for file in installed() {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for image in images(line) {
                let place = format!("{}:{}", file.display(), number + 1);
                assert!(has_registry(image), "{place}: {image} has no registry");
                seen += 1;
            }
        }
    }
    assert!(seen > 8, "{seen}");
}

/// kustomize ignores an image that no manifest has: the cluster would get the name that cannot be pulled.
#[test]
fn a_documented_image_is_one_that_its_manifests_have() {
    let mut seen = 0;
    visit(&root().join("docs/src"), "md", &mut |page| {
        let text = fs::read_to_string(page).unwrap();
        let quoted = text.split('`');
        let folders: Vec<_> = quoted
            .filter_map(|word| word.strip_suffix("/kustomization.yaml"))
            .collect();
        for line in text.lines().filter(|line| line.contains(", newName: ")) {
            let name = line.split("{name: ").nth(1).unwrap();
            let image = format!("image: {}:", name.split(',').next().unwrap());
            for folder in &folders {
                let mut files = fs::read_dir(root().join(folder)).unwrap();
                let has = files.any(|file| {
                    let text = fs::read_to_string(file.unwrap().path());
                    text.is_ok_and(|text| text.contains(&image))
                });
                assert!(has, "{}: {folder}: {line}", page.display());
                seen += 1;
            }
        }
    });
    assert!(seen >= 3, "{seen}");
}

/// H1: until an image is published, no registry can have the shipped name: the top-level domain `invalid` is reserved.
#[test]
fn h1_the_shipped_name_cannot_be_pulled() {
    let shipped = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let image = lines.find_map(|line| line.trim().strip_prefix("image: "));
        image
            .unwrap_or_else(|| panic!("{}: no image", path.display()))
            .to_owned()
    };
    for file in ["deployment.yaml", "node-agent/daemonset.yaml"] {
        let image = shipped(&root().join("deploy/manifests").join(file));
        let host = image.split('/').next().unwrap();
        assert!(host.ends_with(".invalid"), "{file}: {image}");
    }
}

/// kubectl applies a hook as any other object: its permissions would stay.
#[test]
fn the_manifests_have_no_hooks() {
    let mut seen = 0;
    visit(&root().join("deploy/manifests"), "yaml", &mut |file| {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains("helm.sh/"), "{}", file.display());
        seen += 1;
    });
    assert!(seen > 20, "{seen}");
}

/// `helm template` prints hooks as other objects: one that is applied runs `belayer drain` at once.
#[test]
fn every_text_about_helm_template_names_the_options_without_hooks() {
    let mut files = vec![root().join("deploy/charts/belayer/values.yaml")];
    visit(&root().join("docs/src"), "md", &mut |page| {
        files.push(page.to_owned());
    });
    let mut seen = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        if text.contains("helm template") {
            assert!(text.contains("--no-hooks"), "{}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 2, "{seen}");
}

/// Row *release workflow*: the versions of Cargo, chart, image and plugin agree, and the changelog names what is next.
#[test]
fn release_all_versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let has = |file: &str, wanted: &str| {
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(wanted), "{file} does not contain {wanted}");
    };
    for key in ["version", "appVersion"] {
        has(
            "deploy/charts/belayer/Chart.yaml",
            &format!("\n{key}: {version}\n"),
        );
    }
    has(
        "deploy/manifests/deployment.yaml",
        &format!("belayer/belayer:{version}\n"),
    );
    has(
        "deploy/krew/belayer.yaml",
        &format!("\n  version: v{version}\n"),
    );
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let named = ["## Unreleased".to_owned(), format!("## [{version}]")];
    assert!(
        named.iter().any(|head| changelog.contains(head)),
        "CHANGELOG.md"
    );
}

/// Row *kubectl plugin*: the rules of krew's index.
#[test]
fn krew_the_manifest_obeys_the_index() {
    let file = root().join("deploy/krew/belayer.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let all = |key: &str| {
        let lines = text
            .lines()
            .map(|line| line.trim().trim_start_matches("- "));
        let found = lines.filter_map(|line| line.strip_prefix(key));
        found
            .map(|value| value.trim().trim_matches('"').to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("name:"), [file.file_stem().unwrap().to_str().unwrap()]);
    assert!(all("homepage:")[0].starts_with("https://"));
    let short = &all("shortDescription:")[0];
    assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
    assert!(!short.to_lowercase().contains("kubectl plugin"), "{short}");
    let version = &all("version:")[0];
    let archives = all("uri:");
    assert_eq!((archives.len(), all("sha256:").len()), (4, 4));
    for archive in archives {
        let place = format!("/releases/download/{version}/belayer-");
        assert!(
            archive.starts_with("https://") && archive.contains(&place),
            "{archive}"
        );
        assert!(archive.ends_with(".tar.gz"), "{archive}");
    }
    for sum in all("sha256:") {
        assert!(
            sum.len() == 64 && sum.bytes().all(|c| c.is_ascii_hexdigit()),
            "{sum}"
        );
    }
    assert!(all("bin:").iter().all(|bin| bin == "belayer"));
    // No release is built for other systems: krew offers the plugin only where an archive exists.
    assert_eq!(
        all("matchLabels:"),
        [
            "{os: linux, arch: amd64}",
            "{os: linux, arch: arm64}",
            "{os: darwin, arch: amd64}",
            "{os: darwin, arch: arm64}"
        ]
    );
    assert_eq!(
        text.matches("{from: LICENSE, to: .}").count(),
        4,
        "every archive has the license"
    );
}

/// Row *workflows and governance*: a tag can be moved to other code, a commit cannot.
#[test]
fn workflows_use_actions_by_commit_and_keep_no_credentials() {
    let mut seen = 0;
    visit(&root().join(".github/workflows"), "yml", &mut |file| {
        let text = fs::read_to_string(file).unwrap();
        for line in text.lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            // A workflow of this repository, at the same commit.
            if action.starts_with("./") {
                continue;
            }
            let (_, version) = action.split_once('@').unwrap();
            let (commit, tag) = version.split_once(" # ").unwrap_or((version, ""));
            let is_commit = commit.len() == 40 && commit.bytes().all(|c| c.is_ascii_hexdigit());
            assert!(
                is_commit && tag.starts_with('v'),
                "{}: {line}",
                file.display()
            );
            seen += 1;
        }
        let checkouts = text.matches("actions/checkout@").count();
        assert_eq!(
            text.matches("persist-credentials: false").count(),
            checkouts
        );
        assert!(text.contains("\npermissions:\n"), "{}", file.display());
    });
    assert!(seen > 4, "{seen}");
    for file in [
        "CODEOWNERS",
        "CODE_OF_CONDUCT.md",
        "dependabot.yml",
        "ISSUE_TEMPLATE/bug.yml",
        "ISSUE_TEMPLATE/config.yml",
        "ISSUE_TEMPLATE/feature.yml",
    ] {
        assert!(root().join(".github").join(file).exists(), "{file}");
    }
}

/// What is installed from a registry is kept up to date, apart from the control planes of other releases of Kubernetes,
/// whose versions are pinned.
#[test]
fn governance_every_list_of_dependencies_is_updated() {
    let bot = fs::read_to_string(root().join(".github/dependabot.yml")).unwrap();
    let mut seen = 0;
    for (extension, name) in [
        ("mod", "go.mod"),
        ("json", "package.json"),
        ("txt", "requirements.txt"),
    ] {
        visit(&root().join("e2e"), extension, &mut |file| {
            if file.file_name().is_none_or(|found| found != name) {
                return;
            }
            let folder = file.parent().unwrap().strip_prefix(root()).unwrap();
            let folder = format!("/{}", folder.display());
            if folder.starts_with("/e2e/control-plane/") {
                return;
            }
            seen += 1;
            let listed = bot.split(|c: char| c.is_whitespace() || "[],".contains(c));
            assert!(
                listed.clone().any(|word| word == folder),
                "{folder} is not in .github/dependabot.yml"
            );
        });
    }
    assert!(seen > 10, "{seen}");
}

/// Row *publishable crates*: a crate is published without the files above it.
#[test]
fn crates_have_a_license_and_settings_for_their_documentation() {
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let crate_dir = entry.unwrap().path();
        let manifest = fs::read_to_string(crate_dir.join("Cargo.toml")).unwrap();
        if manifest.contains("publish = false") {
            continue;
        }
        assert!(
            crate_dir.join("LICENSE").exists(),
            "{}",
            crate_dir.display()
        );
        for section in ["[package.metadata.docs.rs]", "\ncategories"] {
            assert!(
                manifest.contains(section),
                "{}: {section}",
                crate_dir.display()
            );
        }
    }
}

/// Row *publishable crates* (H4): a dependency with a version must be published first, also one of tests.
#[test]
fn h4_no_published_crate_needs_one_that_is_not() {
    let is_private = |manifest: &str| manifest.contains("publish = false");
    let mut names = Vec::new();
    let mut published = Vec::new();
    for folder in ["crates", "e2e", "xtask"] {
        visit(&root().join(folder), "toml", &mut |file| {
            let text = fs::read_to_string(file).unwrap();
            if file.file_name().is_none_or(|name| name != "Cargo.toml") {
                return;
            }
            let name = text.lines().find_map(|line| line.strip_prefix("name = "));
            let name = name.map(|name| name.trim_matches('"').to_owned());
            match is_private(&text) {
                true => names.extend(name),
                false => published.push((file.to_owned(), text)),
            }
        });
    }
    assert!(names.len() > 4 && published.len() > 12, "{names:?}");
    for (file, text) in published {
        for name in &names {
            let by_version = format!("\n{name}.workspace");
            assert!(!text.contains(&by_version), "{}: {name}", file.display());
        }
    }
}
