use std::convert::Infallible;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use super::*;
use crate::executor::{Bounds, Writes};
use crate::http::Request;

/// Ten tokens a second, and none at the beginning.
async fn tickets() -> Tickets {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let bounds = Bounds {
        qps: 10.0,
        burst: 1,
        ..Bounds::default()
    };
    let executor = Executor::new(
        Client::new(service, "default"),
        "manager",
        bounds,
        Writes::Sent,
    );
    executor.limits.acquire(Class::Notice, Arc::default).await;
    Tickets::new(&executor, WorkQueue::new("keys"))
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}

/// The next key that was served, as a worker would take it.
async fn next(tickets: &Tickets) -> ObjectKey {
    let item = tickets.shared.queue.next().await.unwrap();
    let key = item.key().clone();
    item.done();
    key
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_token_is_queued_again_with_one() {
    let tickets = tickets().await;
    let (first, second) = (key("a", "first"), key("a", "second"));
    let begun = Instant::now();
    assert!(!tickets.begin(&first).may_send());
    assert!(!tickets.begin(&second).may_send());
    // It is worked on for another reason in between: it keeps its ticket and takes no second one.
    assert!(!tickets.begin(&first).may_send());
    assert_eq!(begun.elapsed(), Duration::ZERO);

    assert_eq!(next(&tickets).await, first);
    let mut work = tickets.begin(&first);
    assert!(work.may_send() && work.may_send());
    let write = Request::post("/api/v1/pods", "{}");
    let executor = tickets.executor();
    executor.write(&write, Class::Write).await.unwrap();
    drop(work);
    assert_eq!(next(&tickets).await, second);
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(199)..Duration::from_millis(210)).contains(&took),
        "{took:?}"
    );
    let _ = tickets.begin(&second);
    assert!(tickets.shared.tokens.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unused_token_serves_the_next_key() {
    let tickets = tickets().await;
    let (first, second) = (key("a", "first"), key("a", "second"));
    assert!(!tickets.begin(&first).may_send());
    assert!(!tickets.begin(&second).may_send());
    assert_eq!(next(&tickets).await, first);
    let served = Instant::now();
    // Its object was deleted, or needs no write any more.
    drop(tickets.begin(&first));
    assert_eq!(next(&tickets).await, second);
    assert!(served.elapsed() <= Duration::from_millis(101));
}

/// Rule L1: a tenant with ten thousand pending writes does not starve another tenant's single one.
#[tokio::test(start_paused = true)]
async fn l1_namespaces_take_turns() {
    let tickets = tickets().await;
    for n in 0..10_000 {
        let key = key("hot", &format!("pod-{n}"));
        assert!(!tickets.begin(&key).may_send());
    }
    let quiet = key("quiet", "pod");
    assert!(!tickets.begin(&quiet).may_send());
    let mut before = 0;
    while next(&tickets).await != quiet {
        before += 1;
    }
    assert!(before <= 2, "{before} of the hot namespace went first");
}

#[tokio::test(start_paused = true)]
async fn work_that_has_begun_does_not_wait_for_tokens() {
    let tickets = tickets().await;
    let begun = Instant::now();
    let one = key("a", "one");
    assert!(!tickets.begin(&one).may_send());
    assert_eq!(next(&tickets).await, one);
    let mut work = tickets.begin(&one);
    assert!(work.may_send());
    let took = begun.elapsed();
    for class in [Class::Evidence, Class::Write, Class::Evidence, Class::Write] {
        let request = Request::post("/api/v1/pods", "{}");
        let sent = tickets.executor().write(&request, class).await;
        sent.unwrap();
    }
    assert_eq!(begun.elapsed(), took);
}
