//! The table of keys against the code: every key is in it, with its default, and nothing else is.

mod schema;

use std::collections::BTreeSet;
use std::path::Path;

use clap::{CommandFactory as _, Parser as _};
use serde_json::{Value, json};

use super::*;
use crate::cli::{Cli, Command};
use crate::config::{API_VERSION, Source};
use crate::kubeconfig::Sources;
use crate::options::Settings;
use crate::options::arguments::RunArguments;

fn arguments() -> RunArguments {
    match Cli::try_parse_from(["belayer", "run"]).unwrap().command {
        Command::Run(arguments) => *arguments,
        other => panic!("{other:?}"),
    }
}

fn settings(text: &str) -> Settings {
    let text = format!("apiVersion: {API_VERSION}\n{text}");
    let source = Source::parse(Path::new("b.yaml"), text).unwrap();
    Settings::resolve(&arguments(), &source, &Sources::default()).unwrap()
}

/// Keys with arbitrary maps, whose keys are not checked.
fn is_free(path: &str) -> bool {
    all().any(|key| key.path == path && key.takes.contains(':'))
}

/// A document with `value` at a path without indexes.
fn nested(path: &str, value: Value) -> Value {
    path.rsplit('.')
        .filter(|part| !part.is_empty())
        .fold(value, |value, part| match part.strip_suffix("[]") {
            Some(part) => json!({ part: [value] }),
            None => json!({ part: value }),
        })
}

/// The keys that the code accepts at a path, from the error for an unknown key.
fn known_to_the_code(prefix: &str) -> BTreeSet<String> {
    const NOBODY_MEANS_THIS: &str = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";
    let document = nested(prefix, json!({ NOBODY_MEANS_THIS: 1 }));
    let error = Source::parse(Path::new("b.yaml"), document.to_string())
        .unwrap_err()
        .to_string();
    let (_, known) = error
        .split_once("use one of ")
        .unwrap_or_else(|| panic!("{prefix}: {error}"));
    known.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_code_is_in_the_table_and_no_other() {
    let mut prefixes = BTreeSet::from([String::new()]);
    for key in all() {
        let parts: Vec<_> = key.path.split('.').collect();
        for end in 1..parts.len() {
            prefixes.insert(parts[..end].join("."));
        }
    }
    assert!(prefixes.len() > 20, "{prefixes:?}");
    for prefix in &prefixes {
        let below = |path: &str| -> Option<String> {
            let rest = match prefix.as_str() {
                "" => path,
                prefix => path.strip_prefix(prefix)?.strip_prefix('.')?,
            };
            let first = rest.split('.').next()?;
            Some(first.trim_end_matches("[]").to_owned())
        };
        let in_the_table: BTreeSet<String> = all().filter_map(|key| below(key.path)).collect();
        assert_eq!(known_to_the_code(prefix), in_the_table, "under {prefix:?}");
    }
    // A key without arbitrary map or list is a leaf: it has no keys below it.
    for key in all().filter(|key| is_free(key.path)) {
        assert!(!prefixes.contains(key.path), "{}", key.path);
    }
}

#[test]
fn the_defaults_in_the_table_are_those_of_the_code() {
    let mut written = 0;
    let mut document = json!({ "apiVersion": API_VERSION });
    for key in all().filter(|key| !key.path.contains("[]") && !key.default.is_empty()) {
        let set: crate::config::Set = format!("{}={}", key.path, key.default).parse().unwrap();
        set.apply(&mut document);
        written += 1;
    }
    assert!(written > 40, "{written}");
    let source = Source::parse(Path::new("b.yaml"), document.to_string()).unwrap();
    let all_written = Settings::resolve(&arguments(), &source, &Sources::default()).unwrap();
    assert_eq!(format!("{all_written:#?}"), format!("{:#?}", settings("")));
}

#[test]
fn every_flag_in_the_table_exists() {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let flags: BTreeSet<String> = run
        .get_arguments()
        .chain(command.get_arguments())
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect();
    for key in all().filter(|key| !key.flag.is_empty()) {
        assert!(flags.contains(key.flag), "{}: {}", key.path, key.flag);
    }
}

/// The flags of `run`, with those of every command.
fn flags_of_run() -> Vec<clap::Arg> {
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let all = run.get_arguments().chain(command.get_arguments());
    all.filter(|argument| argument.get_long().is_some())
        .cloned()
        .collect()
}

#[test]
fn every_flag_without_a_key_is_named_on_the_page() {
    let page = include_str!("../../../../../docs/src/reference/configuration.md");
    let (_, rest) = page.split_once("\nFlags without a key: ").unwrap();
    let (named, _) = rest.split_once("\n\n").unwrap();
    for flag in flags_of_run() {
        let flag = format!("--{}", flag.get_long().unwrap());
        let has_key = all().any(|key| key.flag == flag);
        let is_named = named.contains(&format!("`{flag}`"));
        assert_ne!(has_key, is_named, "{flag}");
    }
}

/// The controllers have different defaults, so clap cannot print them.
#[test]
fn the_help_of_workers_names_every_default() {
    let flags = flags_of_run();
    let workers = flags.iter().find(|flag| flag.get_long() == Some("workers"));
    let help = workers.unwrap().get_help().unwrap().to_string();
    let keys: Vec<&Key> = all().filter(|key| key.flag == "--workers").collect();
    assert!(keys.len() > 3, "{}", keys.len());
    for key in keys {
        assert!(help.contains(key.default), "{}: {help}", key.path);
    }
}

/// After a change of a key, regenerate the page:
/// `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -- the_page_of_the_configuration`.
#[test]
fn the_page_of_the_configuration_matches_the_table() {
    const BEGIN: &str = "<!-- keys: made of the table in the code -->\n";
    const END: &str = "<!-- end of keys -->\n";
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}{}\n{END}{after}", reference());
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            page == wanted,
            "docs/src/reference/configuration.md differs from the table"
        );
    }
}

/// Pages of the documentation, with their text.
fn documents(folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let text = std::fs::read_to_string(&path).unwrap();
            into.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn every_configuration_in_the_documentation_is_accepted() {
    let mut pages = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    documents(&root.join("docs/src"), &mut pages);
    let mut examples = 0;
    for (page, text) in &pages {
        let blocks = text
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .filter(|block| block.starts_with("apiVersion: config.belayer.dev"));
        for block in blocks {
            examples += 1;
            let source = Source::parse(Path::new("b.yaml"), block.to_owned())
                .unwrap_or_else(|error| panic!("{page}: {error}"));
            if let Err(error) = Settings::resolve(&arguments(), &source, &Sources::default()) {
                panic!("{page}: {error:?}");
            }
        }
    }
    assert!(examples >= 8, "{examples}");
}

#[test]
fn a_key_in_a_document_finds_its_entry() {
    let of = |path: &str| entry(path).unwrap().path;
    assert_eq!(of("podFinalizer.workers"), "podFinalizer.workers");
    assert_eq!(
        of("podFinalizer.profiles[3].mode"),
        "podFinalizer.profiles[].mode"
    );
    assert_eq!(of("featureGates.X"), "featureGates");
    assert_eq!(of("limits"), "limits.qps");
    assert_eq!(
        of("podFinalizer.profiles[0].owner"),
        "podFinalizer.profiles[].owner.group"
    );
    assert!(entry("nothing").is_none());
}
