//! The repository's own rules.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod crates;
mod deploy;
mod documents;
mod examples;
mod figures;
mod modules;
mod requirements;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

#[test]
fn every_crate_has_a_readme_of_one_screen_with_an_example_that_is_tested() {
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let readme = fs::read_to_string(path.join("README.md"))
            .unwrap_or_else(|_| panic!("{} has no README.md", path.display()));
        let lines = readme.lines().count();
        assert!(
            lines <= 90,
            "{}: {lines} lines are more than a screen",
            path.display()
        );
        assert!(
            readme.contains("```rust"),
            "{}: the README has no example",
            path.display()
        );
        let library = fs::read_to_string(path.join("src/lib.rs")).unwrap();
        let included = library.contains("include_str!(\"../README.md\")");
        assert!(
            included,
            "{}: the README's example is not a doctest",
            path.display()
        );
    }
}

#[test]
fn the_top_level_has_only_known_entries() {
    let allowed: BTreeSet<&str> = [
        ".cargo",
        ".ci",
        ".git",
        ".github",
        ".gitignore",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "clippy.toml",
        "crates",
        "deploy",
        "docs",
        "e2e",
        "rustfmt.toml",
        "target",
        "xtask",
    ]
    .into();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            allowed.contains(name.as_str()),
            "{name} does not belong at the top level"
        );
    }
}

#[test]
fn every_row_of_the_decision_tables_is_named_by_a_test() {
    for (component, rows) in [
        ("pod-finalizer", 14),
        ("workflow-finalizer", 7),
        ("pvc-protection", 8),
    ] {
        rows_are_named(component, rows);
    }
}

fn rows_are_named(component: &str, least: usize) {
    let read =
        |file: &str| fs::read_to_string(root().join("crates").join(component).join(file)).unwrap();
    let (table, tests) = (read("README.md"), read("src/decide/tests.rs"));
    let rows: Vec<u8> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next()?.parse().ok())
        .collect();
    assert!(
        rows.len() >= least,
        "the table of {component} was not found"
    );
    for row in rows {
        assert!(
            tests.contains(&format!("::row_{row:02}_")),
            "row {row} of {component} is named by no test"
        );
    }
}

/// The binary has one line per controller, so that another one needs no further code.
#[test]
fn the_binary_has_few_feature_checks() {
    let mut found = Vec::new();
    visit_code("crates/belayer/src", &mut |_, code| {
        let is_asked = |line: &&str| {
            let line = line.trim_start();
            line.starts_with("#[cfg") && line.contains("feature")
        };
        found.extend(code.lines().filter(is_asked).map(str::to_owned));
    });
    assert!((5..=15).contains(&found.len()), "{found:#?}");
}

/// A simulation replaces the clock and the random numbers of `belayer-core`. With others two runs of one seed would differ.
#[test]
fn the_controllers_read_the_clock_of_core() {
    const CRATES: &[&str] = &[
        "lifecycles",
        "core",
        "holds",
        "pod-finalizer",
        "workflow-finalizer",
        "pvc-protection",
        "pod-recreation",
        "controller",
        "drain",
        "inspect",
        "node-agent",
    ];
    const OTHERS: &[&str] = &[
        "Timestamp::now()",
        "SystemTime::now()",
        "rand::rng()",
        "rand::random",
    ];
    let mut found = Vec::new();
    for name in CRATES {
        visit_code(&format!("crates/{name}/src"), &mut |file, code| {
            if file.ends_with("core/src/clock.rs") || file.ends_with("core/src/rng.rs") {
                return;
            }
            let code = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let wrong = code.filter(|line| OTHERS.iter().any(|other| line.contains(other)));
            found.extend(wrong.map(|line| format!("{}: {line}", file.display())));
        });
    }
    assert!(
        found.is_empty(),
        "use `belayer_core::clock` and `rng`: {found:#?}"
    );
}

/// Calls `see` with each Rust file below the folder and its code, without tests.
fn visit_code(folder: &str, see: &mut dyn FnMut(&Path, &str)) {
    visit(&root().join(folder), "rs", &mut |file| {
        let is_test =
            file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
        if !is_test {
            see(file, without_tests(&fs::read_to_string(file).unwrap()));
        }
    });
}

/// The code of a file before its module of tests. Single items may be for tests only before that.
fn without_tests(code: &str) -> &str {
    let begins = |(at, sign): (usize, &str)| {
        // Attributes may be between, also of several lines.
        let mut after = code[at + sign.len()..].lines();
        let next = after.find(|line| line.starts_with(char::is_alphabetic));
        code[..at].ends_with('\n') && next.is_some_and(|line| line.starts_with("mod tests"))
    };
    let mut signs = code.match_indices("#[cfg(test)]");
    let at = signs.find(|&sign| begins(sign)).map(|(at, _)| at);
    &code[..at.unwrap_or(code.len())]
}

#[test]
fn only_a_module_of_tests_ends_the_code_of_a_file() {
    let code = "fn a() {}\n#[cfg(test)]\nfn b() {}\n#[cfg(test)]\nmod c;\n";
    assert_eq!(without_tests(code), code);
    let tests = "#[cfg(test)]\n#[cfg(all(\n    a,\n))]\n#[expect(unused)]\nmod tests {\n}\n";
    assert_eq!(without_tests(&format!("{code}{tests}")), code);
}

/// What belongs to one controller stands in its crate and not in the binary.
#[test]
fn few_places_of_the_binary_depend_on_a_feature() {
    let mut places = Vec::new();
    visit(&root().join("crates/belayer/src"), "rs", &mut |file| {
        let text = fs::read_to_string(file).unwrap();
        let lines = without_tests(&text).lines();
        places.extend(
            lines
                .filter(|line| line.contains("#[cfg") && line.contains("feature = "))
                .map(|line| format!("{}: {}", file.display(), line.trim())),
        );
    });
    assert!((1..=15).contains(&places.len()), "{places:#?}");
}

/// Each walk names at most five files, each of at most 500 lines, and items that are defined in them.
#[test]
fn the_walks_name_existing_symbols() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let walks = page.split("## Seven walks").nth(1).unwrap();
    let walks = walks.split("\n## ").next().unwrap();
    let mut steps = 0;
    for step in walks.split("[`").skip(1) {
        let (name, rest) = step.split_once("`](").unwrap();
        let (file, _) = rest.split_once(')').unwrap();
        let text =
            fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_defined = |(at, _): (usize, &str)| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let before = &text[..at];
            ["fn ", "struct ", "enum ", "case::"]
                .iter()
                .any(|item| before.ends_with(item))
                && !text[at + name.len()..].starts_with(is_part)
        };
        assert!(
            text.match_indices(name).any(is_defined),
            "{file} does not define {name}"
        );
        assert!(
            text.lines().count() <= 500,
            "{file} has more than 500 lines"
        );
        steps += 1;
    }
    assert!(steps >= 18, "{steps}");
    for walk in walks.lines().filter(|line| line.contains("[`")) {
        let files = walk
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let files: BTreeSet<&str> = files.collect();
        assert!(files.len() <= 5, "more than five files: {walk}");
    }
}

#[test]
fn every_answer_of_the_server_is_named_by_a_test() {
    let table = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = table.split("## Answers of the server").nth(1).unwrap();
    let tests =
        fs::read_to_string(root().join("crates/belayer/tests/operator/answers.rs")).unwrap();
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let codes: BTreeSet<&str> = rows
        .flat_map(|row| row.split(|c: char| !c.is_ascii_digit()))
        .filter(|code| code.len() == 3)
        .collect();
    assert!(codes.len() >= 8, "the table was not found");
    for code in codes {
        assert!(
            tests.contains(&format!("answer_{code}")),
            "answer {code} is named by no test"
        );
    }
}

/// T4: without a namespace the parameter of a policy is read from the namespace of the object, where a
/// tenant can write it.
#[test]
fn t4_the_parameter_of_every_policy_is_in_belayers_namespace() {
    let mut seen = 0;
    visit(&root().join("deploy"), "yaml", &mut |path| {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let depth = |line: &str| line.len() - line.trim_start().len();
        for (at, line) in lines.iter().enumerate() {
            if line.trim() != "paramRef:" {
                continue;
            }
            let below = lines[at + 1..].iter();
            let keys: Vec<&str> = below
                .take_while(|next| depth(next) > depth(line))
                .map(|next| next.trim())
                .collect();
            let own = ["belayer-system", "{{ toYaml .Release.Namespace }}"];
            let is_own = own.map(|name| format!("namespace: {name}"));
            let is_own = is_own.iter().any(|key| keys.contains(&key.as_str()));
            let named = keys.contains(&"name: belayer-gate");
            assert!(named && is_own, "{}: {keys:?}", path.display());
            seen += 1;
        }
    });
    assert!(seen >= 8, "{seen} bindings with a parameter");
    let policy = root().join("deploy/manifests/pod-hold-policy.yaml");
    let policy = fs::read_to_string(policy).unwrap();
    let obeys = "!(('closed.' + request.namespace) in params.?data.orValue({}))";
    assert!(
        policy.contains(obeys),
        "the policy ignores closed namespaces"
    );
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for folder in ["crates", "e2e/src", "e2e/bench", "e2e/subject", "xtask/src"] {
        visit(&root().join(folder), "rs", &mut |file| {
            let lines = fs::read_to_string(file).unwrap().lines().count();
            if lines > 700 {
                long.push(format!("{} has {lines} lines", file.display()));
            }
        });
    }
    assert!(long.is_empty(), "{long:#?}");
}

fn visit(folder: &Path, ending: &str, look: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, ending, look);
        } else if path
            .extension()
            .is_some_and(|extension| extension == ending)
        {
            look(&path);
        }
    }
}
