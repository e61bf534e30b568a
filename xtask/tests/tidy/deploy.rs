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

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let chart = fs::read_to_string(root().join("deploy/charts/belayer/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for key in ["version", "appVersion"] {
        assert!(chart.contains(&format!("\n{key}: {version}\n")), "{key}");
    }
}
