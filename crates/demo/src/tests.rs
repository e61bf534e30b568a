//! Runs the whole demo at high speed.

use std::time::{Duration, Instant};

use super::output::Output;
use super::*;
use belayer_checker::Why;

/// The invariants, by name.
const INVARIANTS: &[&str] = &[
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
async fn the_demo_violates_no_invariant() {
    let arguments = Demo {
        speed: 20.0,
        seed: 7,
        keep_running: false,
        port: 0,
    };
    let (output, lines) = Output::captured();
    let begun = Instant::now();
    let shown = tokio::time::timeout(Duration::from_secs(240), show(&arguments, &output)).await;
    let printed = || lines.lock().join("\n");
    let (mut world, summary) = shown
        .unwrap_or_else(|_| panic!("too slow:\n{}", printed()))
        .unwrap();
    world.end().await.unwrap();
    let printed = printed();
    assert!(summary.is_good(), "{printed}");

    // The demo exercised the controllers.
    let findings = summary.findings();
    assert!(findings.pods >= 200, "{printed}");
    // At this speed some pods end before they can get a hold.
    assert!(findings.holds_added >= findings.pods * 2 / 3, "{printed}");
    // Objects that were not deleted keep their hold, and one hold was removed by hand.
    let released = findings.releases.values().sum::<usize>();
    assert!(findings.holds_added > released, "{printed}");
    for why in [
        Why::ResultConsumed,
        Why::WorkflowDeleted,
        Why::NamespaceDeleted,
        Why::Started,
        Why::PodDeleted,
        Why::PvcDeleted,
    ] {
        assert!(findings.releases.contains_key(&why), "{why:?}: {printed}");
    }
    assert_eq!(findings.by_hand, 0, "{printed}");
    assert_eq!(world.controller.crashes, 1);
    let lost = world
        .faults
        .iter()
        .find(|(name, _)| *name == "lost response")
        .unwrap();
    assert!(lost.1.hits() > 0, "{printed}");

    let first = printed.lines().next().unwrap();
    assert!(first.starts_with("export KUBECONFIG="), "{first}");
    let chapters = printed
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .count();
    assert_eq!(chapters, chapters::CHAPTERS, "{printed}");
    assert!(
        !printed.contains('\u{1b}'),
        "no colours without a terminal:\n{printed}"
    );
    let checked: Vec<&str> = findings.checks.iter().map(|check| check.name).collect();
    for invariant in INVARIANTS {
        assert!(
            checked.contains(invariant),
            "{invariant} is not checked: {printed}"
        );
        assert!(
            printed.contains(invariant),
            "{invariant} is not printed: {printed}"
        );
    }
    let long: Vec<&str> = printed
        .lines()
        .filter(|line| line.chars().count() > 80 && !line.starts_with("export"))
        .collect();
    assert!(long.is_empty(), "too long for a terminal: {long:#?}");
    for line in lines_of_the_page() {
        assert!(
            printed.contains(line),
            "the page of the demo contains {line:?}, but the output does not:\n{printed}"
        );
    }
    println!("{printed}\n{:?}", begun.elapsed());
}

/// The lines of the excerpt in docs/src/start/demo.md that are the same in every run: titles and commands.
fn lines_of_the_page() -> Vec<&'static str> {
    let page = include_str!("../../../docs/src/start/demo.md");
    let excerpt = page
        .split_once("<!-- demo -->")
        .and_then(|(_, rest)| rest.split_once("<!-- end demo -->"))
        .map_or("", |(excerpt, _)| excerpt);
    let same = |line: &&str| {
        line.starts_with(|c: char| c.is_ascii_digit()) || line.trim_start().starts_with("$ ")
    };
    let lines: Vec<&str> = excerpt.lines().filter(same).collect();
    assert!(lines.len() > 3, "the page has no excerpt of the demo");
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_reported_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let arguments = Demo {
        speed: 20.0,
        seed: 1,
        keep_running: false,
        port,
    };
    let (output, lines) = Output::captured();
    let Err(failure) = show(&arguments, &output).await else {
        panic!("{:?}", lines.lock())
    };
    let message = format!("{failure:#}");
    assert!(
        message.contains("--port") && message.contains(&port.to_string()),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
}
