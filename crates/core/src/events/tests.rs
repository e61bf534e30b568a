use std::convert::Infallible;

use kube::client::Body;

use super::*;
use crate::executor::{Bounds, Writes};

fn regarding() -> Regarding {
    Regarding {
        resource: Resource::pods(),
        key: ObjectKey::new("shop", "web-0"),
        uid: Uid::new("u-1"),
    }
}

fn notice() -> Notice {
    Notice {
        severity: Severity::Warning,
        reason: "ReleaseDenied",
        message: "x".repeat(2000).into(),
    }
}

fn queue_of_notices() -> (EventRecorder, queue::Receiver) {
    let (queue, receiver) = queue::queue(8);
    let recorder = EventRecorder::new(queue, Leadership::unlimited());
    (recorder, receiver)
}

#[tokio::test(start_paused = true)]
async fn l4_one_namespace_drops_no_events_of_others() {
    let (recorder, mut receiver) = queue_of_notices();
    let on = |namespace: &str, pod: usize| Regarding {
        key: ObjectKey::new(namespace, format!("web-{pod}")),
        uid: Uid::new(format!("{namespace}-{pod}")),
        ..regarding()
    };
    (0..10_000).for_each(|pod| recorder.record(&on("hot", pod), &notice()));
    (0..3).for_each(|pod| recorder.record(&on("quiet", pod), &notice()));
    (0..10_000).for_each(|pod| recorder.record(&on("hot", pod), &notice()));
    let mut sent = Vec::new();
    while let Ok((regarding, _)) = receiver.try_recv() {
        sent.push(regarding.key.to_string());
    }
    assert_eq!(sent.len(), 8);
    assert_eq!(
        sent[..4],
        ["hot/web-0", "quiet/web-0", "hot/web-1", "quiet/web-1"]
    );
    assert_eq!(
        sent.iter().filter(|one| one.starts_with("quiet")).count(),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn l4_an_object_has_25_events_at_once_and_one_more_every_five_minutes() {
    const REASONS: [&str; 28] = [
        "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R",
        "S", "T", "U", "V", "W", "X", "Y", "Z", "AA", "AB",
    ];
    let (recorder, mut receiver) = queue_of_notices();
    let mut record = |reason: &'static str| {
        recorder.record(&regarding(), &Notice { reason, ..notice() });
        receiver.try_recv().is_ok()
    };
    let recorded = REASONS[..26].iter().filter(|reason| record(reason)).count();
    assert_eq!(recorded, 25);
    tokio::time::advance(REFILL).await;
    assert!(record(REASONS[26]));
    assert!(!record(REASONS[27]));
}

/// A tenant chooses parts of messages, such as its annotations and the reason in a pod's status.
#[tokio::test(start_paused = true)]
async fn a_message_is_one_line_without_control_characters() {
    let log = crate::logged::Log::kept();
    let (recorder, mut receiver) = queue_of_notices();
    let forged = "node \"x\n2026-11-30T00:00:00Z  INFO released\u{1b}[8m\u{202e}\" is unknown";
    recorder.record(&regarding(), &Notice::warning("Unknown", forged));
    let shown = "node \"x 2026-11-30T00:00:00Z  INFO released\u{fffd}[8m\u{fffd}\" is unknown";
    let (_, notice) = receiver.try_recv().unwrap();
    assert_eq!(notice.message, shown);
    assert_eq!(log.text().lines().count(), 1, "{}", log.text());
    assert!(log.text().contains(shown), "{}", log.text());
}

/// Another process leads, and writes and logs them.
#[tokio::test(start_paused = true)]
async fn without_leadership_a_notice_is_neither_logged_nor_remembered() {
    let log = crate::logged::Log::kept();
    let (queue, mut receiver) = queue::queue(8);
    let (guard, leadership) = Leadership::elected();
    let recorder = EventRecorder::new(queue, leadership);
    recorder.record(&regarding(), &notice());
    assert!(receiver.try_recv().is_err());
    assert_eq!(log.text(), "");
    guard.extend(Instant::now() + Duration::from_secs(10));
    recorder.record(&regarding(), &notice());
    assert!(receiver.try_recv().is_ok());
    assert_eq!(log.text().lines().count(), 1, "{}", log.text());
}

/// A reload replaces the recorder.
#[tokio::test(start_paused = true)]
async fn a_recorder_with_the_memory_of_another_one_repeats_nothing() {
    let memory = EventMemory::default();
    let records = |recorder: EventRecorder, mut receiver: queue::Receiver| {
        recorder.record(&regarding(), &notice());
        receiver.try_recv().is_ok()
    };
    let (first, sent) = queue_of_notices();
    assert!(records(first.with_memory(memory.clone()), sent));
    let (second, sent) = queue_of_notices();
    assert!(!records(second.with_memory(memory), sent));
    let (other, sent) = queue_of_notices();
    assert!(records(other, sent), "a restart forgets");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_repeated_is_not_remembered() {
    let (recorder, _receiver) = queue_of_notices();
    let record = |uid: &str| {
        let on = Regarding {
            uid: Uid::new(uid),
            ..regarding()
        };
        recorder.record(&on, &notice());
    };
    (0..100).for_each(|uid| record(&format!("early-{uid}")));
    tokio::time::advance(REPEAT_AFTER / 2).await;
    record("later");
    assert_eq!(recorder.memory.recorded.lock().len(), 101);
    tokio::time::advance(REPEAT_AFTER / 2).await;
    record("now");
    assert_eq!(recorder.memory.recorded.lock().len(), 2);
}

#[test]
fn an_event_names_its_object_and_fits_the_servers_limits() {
    let request = event(&regarding(), &notice(), "manager", Timestamp::UNIX_EPOCH);
    assert_eq!(request.path(), "/api/v1/namespaces/shop/events");
    let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(body["involvedObject"]["uid"], "u-1");
    assert_eq!(body["firstTimestamp"], "1970-01-01T00:00:00Z");
    let message = body["message"].as_str().unwrap();
    assert!(
        message.len() == 1024 && message.ends_with("x …"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reason_is_not_recorded_again_too_soon() {
    let (recorder, mut receiver) = queue_of_notices();
    recorder.record(&regarding(), &notice());
    recorder.record(&regarding(), &notice());
    assert!(receiver.try_recv().is_ok());
    assert!(receiver.try_recv().is_err());
    tokio::time::advance(REPEAT_AFTER).await;
    recorder.record(&regarding(), &notice());
    assert!(receiver.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn l4_the_least_recently_considered_reason_is_forgotten_first() {
    let (recorder, mut receiver) = queue_of_notices();
    let on = |uid: usize| Regarding {
        uid: Uid::new(uid.to_string()),
        ..regarding()
    };
    recorder.record(&on(0), &notice());
    recorder.record(&on(1), &notice());
    for uid in 2..=REMEMBERED.get() {
        recorder.record(&on(0), &notice());
        recorder.record(&on(uid), &notice());
    }
    while receiver.try_recv().is_ok() {}
    assert_eq!(recorder.memory.recorded.lock().len(), REMEMBERED.get());
    recorder.record(&on(0), &notice());
    assert!(receiver.try_recv().is_err(), "it is remembered");
    recorder.record(&on(1), &notice());
    assert!(receiver.try_recv().is_ok(), "it was forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_changed_message_is_recorded_sooner() {
    let (recorder, mut receiver) = queue_of_notices();
    let used_by = |pods: &'static str| Notice {
        message: pods.into(),
        ..notice()
    };
    recorder.record(&regarding(), &used_by("a, b"));
    receiver.try_recv().unwrap();
    recorder.record(&regarding(), &used_by("b"));
    assert!(receiver.try_recv().is_err(), "too soon");
    tokio::time::advance(REPEAT_CHANGED_AFTER).await;
    recorder.record(&regarding(), &used_by("a, b"));
    assert!(receiver.try_recv().is_err(), "nothing has changed");
    recorder.record(&regarding(), &used_by("b"));
    receiver.try_recv().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_notice_waits_for_a_pending_answer() {
    let (recorder, mut receiver) = queue_of_notices();
    let recorded = |message: &'static str| Notice {
        message: message.into(),
        ..notice()
    };
    recorder.record_unless_answered(&regarding(), &recorded("to be found out"));
    assert!(receiver.try_recv().is_err());
    recorder.record(&regarding(), &recorded("offloaded"));
    let (_, said) = receiver.try_recv().unwrap();
    assert_eq!(said.message, "offloaded");
    tokio::time::advance(UNANSWERED).await;
    recorder.record_unless_answered(&regarding(), &recorded("to be found out"));
    assert!(receiver.try_recv().is_err(), "it was recorded already");
}

#[tokio::test(start_paused = true)]
async fn a_notice_is_recorded_if_no_answer_comes() {
    let (recorder, mut receiver) = queue_of_notices();
    recorder.record_unless_answered(&regarding(), &notice());
    tokio::time::advance(UNANSWERED / 2).await;
    recorder.record_unless_answered(&regarding(), &notice());
    assert!(receiver.try_recv().is_err());
    tokio::time::advance(UNANSWERED / 2).await;
    recorder.record_unless_answered(&regarding(), &notice());
    assert!(receiver.try_recv().is_ok());
}

/// The server refuses every request for a minute.
#[tokio::test(start_paused = true)]
async fn l2_a_pause_does_not_drop_the_events_behind_it() {
    let begun = Instant::now();
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&arrived);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        seen.lock().push(begun.elapsed());
        let refused = begun.elapsed() < Duration::from_secs(60);
        let response = http::Response::builder();
        let response = if refused {
            response.status(429).header("retry-after", "30")
        } else {
            response
        };
        async move { Ok::<_, Infallible>(response.body(Body::empty()).unwrap()) }
    });
    let client = kube::Client::new(service, "default");
    let executor = Executor::new(client, "manager", Bounds::default(), Writes::Sent);
    let (recorder, sender) = recorder(Arc::new(executor));
    let cancel = CancellationToken::new();
    tokio::spawn(sender.run(cancel.clone()));
    for uid in 0..100 {
        let regarding = Regarding {
            uid: Uid::new(uid.to_string()),
            ..regarding()
        };
        recorder.record(&regarding, &notice());
    }
    tokio::time::sleep(Duration::from_secs(50)).await;
    // One, its second attempt after a bit more than the pause, and nothing in between.
    assert_eq!(arrived.lock().len(), 2, "{:?}", arrived.lock());
    tokio::time::sleep(Duration::from_secs(100)).await;
    let delivered = arrived
        .lock()
        .iter()
        .filter(|at| at.as_secs() >= 60)
        .count();
    assert!(delivered >= 98, "{delivered}");
    cancel.cancel();
}

/// A webhook for Events may hang. A reload and a stop wait for the sender.
#[tokio::test(start_paused = true)]
async fn an_event_that_hangs_delays_no_stop() {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    let client = kube::Client::new(service, "default");
    let executor = Executor::new(client, "manager", Bounds::default(), Writes::Sent);
    let (recorder, sender) = recorder(Arc::new(executor));
    recorder.record(&regarding(), &notice());
    let cancel = CancellationToken::new();
    let running = tokio::spawn(sender.run(cancel.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    cancel.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(5), running).await;
    assert!(ended.is_ok(), "it still runs");
}

#[tokio::test(start_paused = true)]
async fn notices_that_wait_at_the_stop_count_as_dropped() {
    let (meter, exporter) = belayer_metrics::Exporter::detached().unwrap();
    let _recorded = metrics::set_default_local_recorder(&meter);
    let service = tower::service_fn(|_: http::Request<Body>| async {
        let refused = http::Response::builder()
            .status(429)
            .header("retry-after", "30");
        Ok::<_, Infallible>(refused.body(Body::empty()).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let executor = Executor::new(client, "manager", Bounds::default(), Writes::Sent);
    let (recorder, sender) = recorder(Arc::new(executor));
    for uid in 0..3 {
        let regarding = Regarding {
            uid: Uid::new(uid.to_string()),
            ..regarding()
        };
        recorder.record(&regarding, &notice());
    }
    let cancel = CancellationToken::new();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        cancel.cancel();
    };
    tokio::join!(sender.run(cancel.clone()), stop);
    let late = Regarding {
        uid: Uid::new("late"),
        ..regarding()
    };
    recorder.record(&late, &notice());
    // One waited for its second attempt, two behind it, and one came after the end.
    let text = exporter.render();
    assert!(text.contains("events_dropped_total 4\n"), "{text}");
}
