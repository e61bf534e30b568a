//! The whole demo, fast.

use std::time::{Duration, Instant};

use super::telling::Telling;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_keeps_every_promise() {
    let options = DemoOptions {
        speed: 20.0,
        seed: 7,
        keep_running: false,
        port: 0,
    };
    let (telling, lines) = Telling::kept();
    let begun = Instant::now();
    let shown = tokio::time::timeout(Duration::from_secs(240), show(&options, &telling)).await;
    let told = || lines.lock().join("\n");
    let (mut world, summary) = shown
        .unwrap_or_else(|_| panic!("too slow:\n{}", told()))
        .unwrap();
    world.end().await.unwrap();
    let told = told();
    assert!(summary.is_good(), "{told}");

    // It was about something.
    let findings = summary.findings();
    assert!(findings.pods >= 300, "{told}");
    assert!(findings.holds_added >= findings.pods * 9 / 10, "{told}");
    assert_eq!(
        findings.holds_added,
        findings.releases.values().sum::<usize>(),
        "{told}"
    );
    assert_eq!(findings.releases.len(), 4, "{told}");
    assert_eq!(findings.by_hand, 0, "{told}");
    assert_eq!(world.controller.crashes, 1);
    let lost = world
        .faults
        .iter()
        .find(|(name, _)| name.starts_with("answers lost"))
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
    println!("{told}\n{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_one_clear_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let options = DemoOptions {
        speed: 20.0,
        seed: 1,
        keep_running: false,
        port,
    };
    let (telling, lines) = Telling::kept();
    let Err(failure) = show(&options, &telling).await else {
        panic!("{:?}", lines.lock())
    };
    let message = failure.to_string();
    assert!(
        message.contains("--port") && message.contains(&port.to_string()),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
}
