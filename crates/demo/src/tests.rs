//! The whole demo, fast.

use std::time::{Duration, Instant};

use super::telling::Telling;
use super::*;
use belayer_checker::Why;

/// What is promised, by name.
const PROMISES: &[&str] = &[
    "FOREIGN",
    "EVIDENCE",
    "IDENTITY",
    "NO-LATE-HOLD",
    "LIVENESS",
    "QUIET",
    "RESULTS",
    "ORDER",
    "IN-USE",
    "ONE-POD",
    "NO-LOSS",
    "RAN-ONCE",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_keeps_every_promise() {
    let arguments = Demo {
        speed: 20.0,
        seed: 7,
        keep_running: false,
        port: 0,
    };
    let (telling, lines) = Telling::kept();
    let begun = Instant::now();
    let shown = tokio::time::timeout(Duration::from_secs(240), show(&arguments, &telling)).await;
    let told = || lines.lock().join("\n");
    let (mut world, summary) = shown
        .unwrap_or_else(|_| panic!("too slow:\n{}", told()))
        .unwrap();
    world.end().await.unwrap();
    let told = told();
    assert!(summary.is_good(), "{told}");

    // It was about something.
    let findings = summary.findings();
    assert!(findings.pods >= 200, "{told}");
    // At this speed some pods end before anybody could hold them.
    assert!(findings.holds_added >= findings.pods * 2 / 3, "{told}");
    // What is still held is what nobody deleted; one hold somebody took off by hand.
    let released = findings.releases.values().sum::<usize>();
    assert!(findings.holds_added > released, "{told}");
    for why in [
        Why::ResultTaken,
        Why::WorkflowDeleted,
        Why::NamespaceDeleted,
        Why::Started,
        Why::PodDeleted,
        Why::ClaimDeleted,
    ] {
        assert!(findings.releases.contains_key(&why), "{why:?}: {told}");
    }
    assert_eq!(findings.by_hand, 0, "{told}");
    assert_eq!(world.controller.crashes, 1);
    let lost = world
        .faults
        .iter()
        .find(|(name, _)| *name == "answer lost")
        .unwrap();
    assert!(lost.1.hits() > 0, "{told}");

    let first = told.lines().next().unwrap();
    assert!(first.starts_with("export KUBECONFIG="), "{first}");
    let chapters = told
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .count();
    assert_eq!(chapters, story::CHAPTERS, "{told}");
    assert!(
        !told.contains('\u{1b}'),
        "no colours without a terminal:\n{told}"
    );
    let judged: Vec<&str> = findings.checks.iter().map(|check| check.name).collect();
    for promise in PROMISES {
        assert!(judged.contains(promise), "{promise} is not judged: {told}");
        assert!(told.contains(promise), "{promise} is not told: {told}");
    }
    let long: Vec<&str> = told
        .lines()
        .filter(|line| line.chars().count() > 80 && !line.starts_with("export"))
        .collect();
    assert!(long.is_empty(), "too long for a terminal: {long:#?}");
    for line in shown_in_the_readme() {
        assert!(told.contains(line), "the README shows {line:?}:\n{told}");
    }
    println!("{told}\n{:?}", begun.elapsed());
}

/// The lines of the README's excerpt that are the same in every run: titles and commands.
fn shown_in_the_readme() -> Vec<&'static str> {
    let readme = include_str!("../../../README.md");
    let excerpt = readme
        .split_once("<!-- demo -->")
        .and_then(|(_, rest)| rest.split_once("<!-- end demo -->"))
        .map_or("", |(excerpt, _)| excerpt);
    let same = |line: &&str| {
        line.starts_with(|c: char| c.is_ascii_digit()) || line.trim_start().starts_with("$ ")
    };
    let lines: Vec<&str> = excerpt.lines().filter(same).collect();
    assert!(lines.len() > 3, "the README shows nothing of the demo");
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_one_clear_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let arguments = Demo {
        speed: 20.0,
        seed: 1,
        keep_running: false,
        port,
    };
    let (telling, lines) = Telling::kept();
    let Err(failure) = show(&arguments, &telling).await else {
        panic!("{:?}", lines.lock())
    };
    let message = format!("{failure:#}");
    assert!(
        message.contains("--port") && message.contains(&port.to_string()),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
}
