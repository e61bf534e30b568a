//! Invalid files and flags with their error messages: `bad.txt` in this directory. Each error has one or two
//! lines, names its location, and says how to correct it.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -- bad_configuration` writes it anew.

use std::fmt::Write as _;
use std::path::Path;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::config::Source;
use crate::exit::Failure;
use crate::kubeconfig::Sources;
use crate::options::Settings;

const CASES: &str = include_str!("bad.txt");
const HEAD: &str = "apiVersion: config.belayer.dev/v1alpha1\n";

struct Case<'a> {
    name: &'a str,
    /// Arguments, one per word; none if there are none.
    flags: Option<&'a str>,
    file: &'a str,
    says: &'a str,
}

fn cases() -> Vec<Case<'static>> {
    CASES
        .split("=== ")
        .skip(1)
        .map(|text| {
            let (name, rest) = text.split_once('\n').unwrap();
            let (input, says) = rest.split_once(">>> ").unwrap_or((rest, ""));
            let (flags, file) = match input.strip_prefix("$ ") {
                Some(rest) => {
                    let (flags, file) = rest.split_once('\n').unwrap();
                    (Some(flags), file)
                }
                None => (None, input),
            };
            Case {
                name,
                flags,
                file,
                says: says.trim_end(),
            }
        })
        .collect()
}

/// What `belayer run` says, and its exit code.
fn said(case: &Case<'_>) -> (String, u8) {
    let flags = case.flags.unwrap_or_default().split_whitespace();
    let cli = match Cli::try_parse_from(["belayer", "run"].into_iter().chain(flags)) {
        Ok(cli) => cli,
        Err(error) => {
            let text = error.render().to_string();
            let text = text.split("\n\nUsage:").next().unwrap().to_owned();
            let text = text.split("\n\nFor more").next().unwrap().to_owned();
            return (text, u8::try_from(error.exit_code()).unwrap());
        }
    };
    let Command::Run(arguments) = cli.command else {
        panic!("no run");
    };
    let file = match case.file.strip_prefix("# whole\n") {
        Some(whole) => whole.to_owned(),
        None => format!("{HEAD}{}", case.file),
    };
    let wrong = Failure::configuration;
    let resolved = Source::parse(Path::new("b.yaml"), file)
        .and_then(|source| source.with(&arguments.set))
        .map_err(wrong)
        .and_then(|source| {
            source.logging(&cli.logging).map_err(wrong)?;
            Settings::resolve(&arguments, &source, &Sources::default())
        });
    let failure = resolved
        .err()
        .unwrap_or_else(|| panic!("{} is good", case.name));
    (failure.to_string(), failure.code())
}

#[test]
fn bad_configuration_is_told_in_one_line_or_two_with_its_place() {
    let cases = cases();
    assert!(cases.len() >= 60, "{}", cases.len());
    let mut written = CASES.split("=== ").next().unwrap().to_owned();
    let mut wrong = Vec::new();
    for case in &cases {
        let (text, code) = said(case);
        assert_eq!(code, 2, "{}: {text}", case.name);
        assert!(text.lines().count() <= 2, "{}: {text}", case.name);
        assert!(
            text.len() <= 320,
            "{}: {} characters",
            case.name,
            text.len()
        );
        assert!(
            text.contains("b.yaml:") || text.contains("--"),
            "{} names no place: {text}",
            case.name
        );
        if text != case.says {
            wrong.push(format!(
                "{}:\n  says {text}\n  was  {}",
                case.name, case.says
            ));
        }
        let flags = case
            .flags
            .map(|flags| format!("$ {flags}\n"))
            .unwrap_or_default();
        let _ = write!(
            written,
            "=== {}\n{flags}{}>>> {text}\n\n",
            case.name, case.file
        );
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/tests/bad.txt");
        std::fs::write(path, written.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
