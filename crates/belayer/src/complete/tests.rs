use clap::CommandFactory as _;
use rstest::rstest;

use super::line::{Line, Next, Wanted};
use crate::cli::Cli;

fn next(words: &[&str]) -> Next {
    let mut root = Cli::command();
    root.build();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Line::read(&root, &words).next()
}

fn text(words: &[&str]) -> String {
    let mut root = Cli::command();
    root.build();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let line = Line::read(&root, &words);
    let Next::Choices(choices) = line.next() else {
        panic!("{:?}", line.next());
    };
    super::text(&line, choices, super::Directive::NoFiles)
}

#[test]
fn commands_that_begin_so_are_printed_with_what_they_do() {
    let printed = text(&["st"]);
    let mut lines = printed.lines();
    let words: Vec<&str> = lines
        .by_ref()
        .take(2)
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert_eq!(words, ["status", "stuck"]);
    assert_eq!(lines.next(), Some(":4"));
    assert!(
        printed.contains("stuck\tList objects stuck in Terminating"),
        "{printed}"
    );
    assert!(
        !text(&[""]).contains("__complete"),
        "hidden commands are not offered"
    );
}

#[test]
fn flags_and_their_values_are_known() {
    assert!(text(&["stuck", "--old"]).starts_with("--older-than\tOnly objects past"));
    assert_eq!(
        text(&["status", "-o", "j"])
            .lines()
            .next()
            .unwrap()
            .split('\t')
            .next(),
        Some("json")
    );
    let printed = text(&["status", "--output=y"]);
    assert!(printed.starts_with("--output=yaml"), "{printed}");
}

#[rstest]
#[case(&["stuck", "-n", ""], Wanted::Namespaces)]
#[case(&["stuck", "--namespace="], Wanted::Namespaces)]
#[case(&["drain", "--except-namespace", "a"], Wanted::Namespaces)]
#[case(&["stuck", "--context", ""], Wanted::Contexts)]
#[case(&["explain", ""], Wanted::Kinds)]
#[case(&["explain", "-w", "po"], Wanted::Kinds)]
#[case(&["explain", "pod/"], Wanted::Names("pod".into()))]
#[case(&["explain", "-n", "shop", "pod/we"], Wanted::Names("pod".into()))]
#[case(&["--log-level=debug", "explain", "-nshop", "pod", ""], Wanted::Names("pod".into()))]
fn live_words_are_read_from_the_cluster(#[case] words: &[&str], #[case] wanted: Wanted) {
    assert_eq!(next(words), Next::Live(wanted));
}

#[rstest]
#[case(&["explain", "pod/a", ""])]
#[case(&["explain", "pod", "a", ""])]
#[case(&["stuck", "--older-than", ""])]
#[case(&["stuck", "x"])]
fn there_is_nothing_to_offer(#[case] words: &[&str]) {
    assert_eq!(next(words), Next::Choices(Vec::new()));
}

#[test]
fn files_are_left_to_the_shell() {
    assert_eq!(next(&["check", "--config", ""]), Next::Files);
}
