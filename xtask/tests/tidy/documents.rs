//! Documents against the repository: links, pages of the book, manifests, invariants.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{root, visit};

/// Links from the book into the repository have this prefix, because the book is also read without it.
const REPOSITORY: &str = "https://github.com/belayer/belayer/blob/main/";

const BOOK: &str = "docs/src";

/// Every Markdown file that belongs to the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    for folder in ["crates", "deploy", "docs", "e2e", "xtask"] {
        visit(&root().join(folder), "md", &mut |page| {
            if page.components().all(|part| part.as_os_str() != "target") {
                pages.push(page.to_owned());
            }
        });
    }
    pages
}

fn in_repository(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !fence && !code
    })
}

/// The targets of the links in a line, without those inside of code spans.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = line[from..].find("](") {
        let start = from + at + 2;
        let is_code = line[..start].matches('`').count() % 2 == 1;
        let Some(length) = line[start..].find(')') else {
            break;
        };
        from = start + length;
        if !is_code {
            found.push(&line[start..from]);
        }
    }
    found
}

/// The anchors of a page, as GitHub and mdBook make them from its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let Some(title) = line.strip_prefix('#') else {
            continue;
        };
        let title = title.trim_start_matches('#').trim();
        let kept = title.to_lowercase();
        let kept = kept
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        anchors.insert(anchor);
    }
    anchors
}

/// `folder/../page.md` without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// What is wrong with a link, if anything is.
fn problem(page: &Path, target: &str) -> Option<String> {
    // A link to an item, which rustdoc checks.
    let is_item = |path: &str| path.contains("::") || !path.contains(['.', '/']);
    let in_book = page.starts_with(root().join(BOOK));
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = if let Some(path) = path.strip_prefix(REPOSITORY) {
        root().join(path)
    } else if path.contains("://") || path.starts_with("mailto:") {
        return None;
    } else if path.is_empty() {
        page.to_owned()
    } else if page.starts_with(root().join("crates")) && is_item(path) {
        return None;
    } else {
        let to = plain(&page.parent().unwrap().join(path));
        if in_book && !to.starts_with(root().join(BOOK)) {
            return Some(format!("leads out of the book: begin it with {REPOSITORY}"));
        }
        to
    };
    if !to.exists() {
        return Some("there is no such file".to_owned());
    }
    let known = || anchors(&fs::read_to_string(&to).unwrap()).contains(anchor);
    (!anchor.is_empty() && !known()).then(|| "there is no such heading".to_owned())
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let (mut links, mut broken) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in prose(&text).flat_map(targets) {
            links += 1;
            if let Some(problem) = problem(&page, target) {
                broken.push(format!("{}: {target}: {problem}", in_repository(&page)));
            }
        }
    }
    assert!(links > 100, "{links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("docs/src/introduction.md");
    for (target, says) in [
        ("missing.md", "no such file"),
        ("#missing", "no such heading"),
        ("introduction.md#missing", "no such heading"),
        ("../../README.md", "out of the book"),
    ] {
        let problem = problem(&page, target).unwrap();
        assert!(problem.contains(says), "{target}: {problem}");
    }
    assert_eq!(targets("[a](b) and `[c](d)` and [`e`](f)"), ["b", "f"]);
}

/// Texts in code and manifests name pages without a link.
#[test]
fn every_page_that_code_or_a_manifest_names_exists() {
    let mut files = pages();
    for (folder, ending) in [
        ("crates", "rs"),
        ("e2e/src", "rs"),
        ("xtask/src", "rs"),
        ("deploy", "yaml"),
    ] {
        visit(&root().join(folder), ending, &mut |file| {
            files.push(file.to_owned());
        });
    }
    let mut missing = Vec::new();
    // The changelog names pages as they were called then.
    for file in files.iter().filter(|file| !file.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(file).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let name = text[at..]
                .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '.')))
                .next()
                .unwrap_or_default();
            let ours = name.ends_with(".md") && !text[..at].ends_with('/');
            if ours && !root().join(name).exists() {
                missing.push(format!("{}: {name}", in_repository(file)));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let folder = root().join(BOOK);
    let summary = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = summary
        .lines()
        .flat_map(targets)
        .map(PathBuf::from)
        .collect();
    let mut pages = BTreeSet::new();
    visit(&folder, "md", &mut |page| {
        let name = page.strip_prefix(&folder).unwrap().to_owned();
        if name != Path::new("SUMMARY.md") {
            pages.insert(name);
        }
    });
    assert_eq!(listed, pages);
}

/// The README is the first page: what, for whom, proof, and two commands to set it up.
#[test]
fn the_readme_is_short_and_has_two_commands_for_a_start() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= 120, "{lines} lines");
    let commands: BTreeSet<&str> = readme
        .split("cargo xtask ")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next())
        .collect();
    assert_eq!(commands, BTreeSet::from(["demo", "test"]));
}

/// A pattern of a file name with at most one `*`.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
        None => pattern == name,
    }
}

#[test]
fn the_table_of_manifests_names_every_manifest() {
    let page = fs::read_to_string(root().join(BOOK).join("install/install.md")).unwrap();
    let (_, table) = page.split_once("\n## The manifests\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let named: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    for entry in fs::read_dir(root().join("deploy/manifests")).unwrap() {
        let entry = entry.unwrap();
        let mut name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            name.push('/');
        }
        let found = named.iter().any(|pattern| fits(pattern, &name));
        assert!(found || name == "kustomization.yaml", "{name}");
    }
}

#[test]
fn every_invariant_that_the_checker_checks_is_in_the_architecture() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut checked = 0;
    visit(&root().join("crates/checker/src"), "rs", &mut |file| {
        let text = fs::read_to_string(file).unwrap();
        for rest in text.split("name: \"").skip(1) {
            let name = rest.split('"').next().unwrap();
            if name.chars().all(|c| c.is_ascii_uppercase() || c == '-') {
                checked += 1;
                assert!(page.contains(&format!("\n| {name} |")), "{name}");
            }
        }
    });
    assert!(checked >= 8, "{checked}");
}
