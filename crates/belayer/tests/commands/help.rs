//! The help of every command at 80 columns, which the docs contain; completions and manual pages.

use std::fmt::Write as _;
use std::path::Path;

use belayer::cli::Cli;
use belayer::manual;
use clap::Command;
use clap::CommandFactory as _;
use rstest::rstest;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/src/reference/commands.md"
);

/// The help of every visible command by its name, and the text below its options.
fn helps(called: Option<&str>) -> Vec<(String, String, String)> {
    let mut command = manual::command(Cli::command(), called.map(Path::new)).term_width(80);
    command.build();
    let mut helps = vec![of(&mut command)];
    let names: Vec<String> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    for name in names {
        helps.push(of(command.find_subcommand_mut(&name).unwrap()));
    }
    helps
}

fn of(command: &mut Command) -> (String, String, String) {
    let called = command.get_bin_name().unwrap_or("belayer").to_owned();
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let below = command.get_after_help().map(ToString::to_string);
    let help = format!("{}\n", lines.join("\n").trim_end());
    (called, help, below.unwrap_or_default())
}

/// After a change of a flag run this test with `UPDATE_SNAPSHOTS=1`.
#[test]
fn the_commands_page_contains_the_help() {
    let mut page = String::from(
        "# Commands\n\nWhat `--help` prints, at 80 columns. Installed as `kubectl-belayer` the program is a plugin of\n\
         kubectl, and all of it is called `kubectl belayer`. This page is generated.\n",
    );
    for (called, help, _) in helps(None) {
        let _ = write!(page, "\n## {called}\n\n```text\n{help}```\n");
    }
    let now = std::fs::read_to_string(PAGE).unwrap_or_default();
    if now != page && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
        return;
    }
    let differs = now.lines().zip(page.lines()).find(|(a, b)| a != b);
    assert!(
        now == page,
        "docs/src/reference/commands.md is not up to date ({differs:?}): run UPDATE_SNAPSHOTS=1 cargo test --workspace --test commands"
    );
}

#[rstest]
#[case::as_a_program(None, "belayer")]
#[case::as_a_plugin(Some("/usr/local/bin/kubectl-belayer"), "kubectl belayer")]
fn every_help_fits_80_columns_and_lists_exit_codes(
    #[case] called: Option<&str>,
    #[case] name: &str,
) {
    let helps = helps(called);
    assert!(helps.len() > 7, "the commands were not found");
    for (command, help, below) in helps {
        assert!(command.starts_with(name), "{command}");
        assert!(help.contains(&format!("Usage: {name}")), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
        // A line that clap wraps loses its indentation.
        for line in below.lines().map(str::trim_end) {
            assert!(
                help.lines().any(|printed| printed == line),
                "{command}: {line}"
            );
        }
        let (_, codes) = help
            .split_once("Exit codes:\n")
            .unwrap_or_else(|| panic!("{command} has no exit codes"));
        for code in ["  0  ", "  2  "] {
            assert!(codes.contains(code), "{command}: {code}");
        }
        let examples = help.lines().filter(|line| line.starts_with("  belayer "));
        let strange: Vec<&str> = examples.filter(|_| name != "belayer").collect();
        assert_eq!(strange, Vec::<&str>::new(), "{command}");
    }
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_belayer"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[rstest]
#[case("bash", "complete -F _belayer")]
#[case("zsh", "#compdef belayer")]
#[case("fish", "complete -c belayer")]
#[case("elvish", "edit:completion:arg-completer[belayer]")]
#[case("powershell", "Register-ArgumentCompleter")]
fn completions_contain_every_command(#[case] shell: &str, #[case] says: &str) {
    let (code, script) = run(&["completions", shell]);
    assert_eq!(code, Some(0));
    assert!(script.contains(says), "{script}");
    for command in ["run", "status", "check", "stuck", "explain"] {
        assert!(script.contains(command), "{command}");
    }
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man");
    let (code, _) = run(&["man", "--dir", pages.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    for (called, _, _) in helps(None) {
        let name = called.replace(' ', "-");
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        assert!(page.contains("Exit codes:"), "{name}");
    }
    let (code, first) = run(&["man"]);
    assert_eq!(code, Some(0));
    assert!(first.contains(".TH belayer 1"), "{first}");
}
