//! Documents against the repository: links, pages of the book, manifests, invariants.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{root, visit};

/// Links from the book into the repository have this prefix, because the book is also read without it.
const REPOSITORY: &str = "https://github.com/belayer/belayer/blob/main/";

pub(super) const BOOK: &str = "docs/src";

/// Every Markdown file that belongs to the repository.
pub(super) fn pages() -> Vec<PathBuf> {
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

pub(super) fn in_repository(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The lines of SECURITY.md's table of threats, without its head.
fn threats(text: &str) -> Vec<&str> {
    let lines = text
        .lines()
        .skip_while(|line| !line.ends_with("| shown by |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    lines.collect()
}

/// The names in code spans.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_line_of_the_threat_model_names_a_scenario() {
    let security = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut code = String::new();
    for folder in ["crates", "e2e/src"] {
        visit(&root().join(folder), "rs", &mut |file| {
            code.push_str(&fs::read_to_string(file).unwrap());
        });
    }
    let exists = |name: &str| {
        // A scenario by its literal, a test by its function.
        code.contains(&format!("\"{name}\",")) || code.contains(&format!("fn {name}("))
    };
    let threats = threats(&security);
    assert!(threats.len() > 10, "{threats:?}");
    for line in threats {
        let shown_by = line.trim_end_matches('|').rsplit('|').next().unwrap();
        assert!(names(shown_by).next().is_some(), "shown by nothing: {line}");
        for name in names(shown_by) {
            assert!(exists(name), "neither a scenario nor a test: {name}");
        }
    }
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

/// What a text calls by a path that begins with `prefix`, with the text after each.
fn mentions<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let in_path = |c: char| c.is_ascii_alphanumeric() || c == '/';
    let in_name = move |c: char| in_path(c) || matches!(c, '-' | '.' | '_');
    let begins = text.match_indices(prefix);
    let begins = begins.filter(move |(at, _)| !text[..*at].ends_with(in_path));
    begins.map(move |(at, _)| {
        let name = text[at..].split(|c| !in_name(c)).next().unwrap_or_default();
        let name = name.trim_end_matches('.');
        (name, &text[at + name.len()..])
    })
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
        for (name, _) in mentions(&text, "docs/") {
            if name.ends_with(".md") && !root().join(name).exists() {
                missing.push(format!("{}: {name}", in_repository(file)));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What a page calls by the path of `deploy` exists, without links and templates.
#[test]
fn every_manifest_that_a_page_names_exists() {
    let (mut named, mut missing) = (0, Vec::new());
    for page in pages()
        .iter()
        .filter(|page| !page.ends_with("CHANGELOG.md"))
    {
        let text = fs::read_to_string(page).unwrap();
        for (name, rest) in mentions(&text, "deploy/") {
            if !rest.starts_with(['*', '<', '{']) {
                named += 1;
                if !root().join(name).exists() {
                    missing.push(format!("{}: {name}", in_repository(page)));
                }
            }
        }
    }
    assert!(named > 20, "{named}");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Drawings that no program makes: a name of Belayer in them is a name of the reference or of a manifest.
#[test]
fn the_names_in_drawings_exist() {
    let reference = fs::read_to_string(root().join(BOOK).join("reference/names.md")).unwrap();
    let mut known = reference;
    visit(&root().join("deploy/manifests"), "yaml", &mut |file| {
        known.push_str(&fs::read_to_string(file).unwrap());
    });
    let mut seen = 0;
    for drawing in ["held-pod", "components"] {
        let file = root().join(BOOK).join(format!("concepts/{drawing}.svg"));
        let text = fs::read_to_string(file).unwrap();
        let shown = text.split('>').filter_map(|part| part.split('<').next());
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-./*".contains(c);
        for word in shown.flat_map(|text| text.split(|c| !is_name(c))) {
            let word = word.trim_end_matches('.');
            let named = word.starts_with("belayer") || word.ends_with("-finalizer");
            if named || ["NodeWipe", "pvc-protection", "pod-recreation"].contains(&word) {
                // `belayer-*-hold` stands for several.
                let parts: Vec<&str> = word.split('*').collect();
                let exists = parts.iter().all(|part| known.contains(part));
                assert!(exists, "{drawing}.svg: {word}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 8, "{seen}");
}

/// Measurements of the page are in tables that `cargo xtask bench --docs` writes.
#[test]
fn the_page_of_performance_has_no_typed_measurement() {
    let page = fs::read_to_string(root().join(BOOK).join("contribute/performance.md")).unwrap();
    let mut tables = false;
    for line in prose(&page) {
        tables = (tables || line.starts_with("<!-- bench")) && !line.starts_with("<!-- end");
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2).filter(|_| !tables) {
            let unit = pair[1].trim_end_matches(['.', ',', ';', ')']);
            let is_unit = ["s", "ms", "µs", "%", "MB", "KB"].contains(&unit);
            let is_number = pair[0].starts_with(|c: char| c.is_ascii_digit());
            assert!(!(is_unit && is_number), "{line}");
        }
    }
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

/// Whoever follows a title of the summary finds it at the top of the page. The first page has the name of the project.
#[test]
fn the_title_of_a_page_is_that_of_the_summary() {
    let folder = root().join(BOOK);
    let summary = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let mut differ = Vec::new();
    for line in summary.lines().filter(|line| line.starts_with("- [")) {
        let (title, file) = line[3..].trim_end_matches(')').split_once("](").unwrap();
        let page = fs::read_to_string(folder.join(file)).unwrap();
        let heading = page.lines().next().unwrap_or_default().replace('`', "");
        if heading != format!("# {title}") {
            differ.push(format!("{file}: {heading:?}, in the summary {title:?}"));
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Row *site*: the parts of the book in their order.
#[test]
fn site_the_book_has_its_parts() {
    let summary = fs::read_to_string(root().join(BOOK).join("SUMMARY.md")).unwrap();
    let parts = summary.lines().filter_map(|line| line.strip_prefix("# "));
    let wanted = [
        "Summary",
        "Start",
        "Concepts",
        "Install",
        "Tasks",
        "Troubleshooting",
        "Reference",
        "Contribute",
    ];
    assert_eq!(parts.collect::<Vec<_>>(), wanted);
}

/// Row *questions*: what an admin asks before and after the installation has a page.
#[test]
fn questions_of_an_admin_have_pages() {
    for (page, answers) in [
        ("install/before.md", &["writes", "long"][..]),
        (
            "install/sizing.md",
            &["memory", "100,000 pods", "load on the api server"],
        ),
        (
            "install/high-availability.md",
            &["replica", "leader", "spread"],
        ),
        (
            "install/platforms.md",
            &[
                "eks",
                "gke",
                "aks",
                "openshift",
                "proxies",
                "arm64",
                "macos",
            ],
        ),
        ("install/gitops.md", &["argo cd", "flux"]),
        ("install/upgrade.md", &["roll back"]),
        (
            "troubleshooting/failures.md",
            &[
                "belayer is down",
                "leader",
                "api server",
                "etcd is restored",
                "node is lost",
                "argo",
            ],
        ),
        (
            "tasks/drain-nodes.md",
            &[
                "kubectl drain",
                "karpenter",
                "autoscaler",
                "the way out",
                "measured",
            ],
        ),
        ("tasks/tenants.md", &["team", "namespace", "backlog"]),
        ("tasks/backups.md", &["velero", "restore"]),
        ("troubleshooting/belayer-down.md", &["release"]),
        ("troubleshooting/break-glass.md", &["kubectl"]),
    ] {
        let text = fs::read_to_string(root().join(BOOK).join(page))
            .unwrap()
            .to_lowercase();
        for answer in answers {
            assert!(text.contains(answer), "{page}: {answer}");
        }
    }
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
