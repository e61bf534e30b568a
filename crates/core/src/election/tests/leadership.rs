//! Nothing is written outside of a leadership.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::Response;
use kube::client::Body;
use tokio::time::{Instant, sleep, timeout};

use super::super::Leadership;
use super::seconds;
use crate::client;
use crate::executor::{Bounds, Class, Executor, Writes};
use crate::http::{Request, RequestError};

/// A server that counts requests and responds to each after `delay` seconds.
fn server(delay: u64) -> (kube::Client, Arc<AtomicUsize>) {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrived);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            sleep(seconds(delay)).await;
            Ok::<_, Infallible>(Response::new(http_body_util::Full::new(
                bytes::Bytes::from_static(b"{}"),
            )))
        }
    });
    (client::in_process(service, "test/1.0"), arrived)
}

fn write() -> Request {
    Request::post("/api/v1/namespaces/a/events", "{}")
}

#[tokio::test(start_paused = true)]
async fn a_standby_may_read_but_not_write() {
    let (client, arrived) = server(0);
    let (guard, leadership) = Leadership::elected();
    let executor = Executor::new(client, "manager", Bounds::default(), Writes::Sent)
        .within(leadership.clone());
    let refused = executor.write(&write(), Class::Release).await;
    assert!(
        matches!(refused, Err(RequestError::NotLeading)),
        "{refused:?}"
    );
    assert_eq!(arrived.load(Ordering::SeqCst), 0);
    executor
        .read(&Request::get("/version"), Class::Evidence)
        .await
        .unwrap();
    assert_eq!(arrived.load(Ordering::SeqCst), 1);
    guard.extend(Instant::now() + seconds(10));
    executor.write(&write(), Class::Release).await.unwrap();
    assert_eq!(arrived.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_at_the_end_is_cancelled_at_once() {
    let (client, _) = server(60);
    let (guard, leadership) = Leadership::elected();
    let executor =
        Executor::new(client, "manager", Bounds::default(), Writes::Sent).within(leadership);
    let begun = Instant::now();
    guard.extend(begun + seconds(10));
    let answer = executor.write(&write(), Class::Release).await;
    assert!(
        matches!(answer, Err(RequestError::NotLeading)),
        "{answer:?}"
    );
    assert_eq!(begun.elapsed(), seconds(10));
}

/// A process is frozen while a request waits for its connection: when it wakes up, the connection
/// is ready before any timer is polled.
#[tokio::test]
async fn a_request_that_was_frozen_is_not_sent() {
    let (guard, leadership) = Leadership::elected();
    let lasts = Duration::from_millis(50);
    guard.extend(Instant::now() + lasts);
    let sent = AtomicBool::new(false);
    let mut frozen = false;
    let write = poll_fn(|cx| {
        if frozen {
            sent.store(true, Ordering::SeqCst);
            return Poll::Ready(Ok(()));
        }
        frozen = true;
        std::thread::sleep(lasts);
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    let answer = leadership.within(write).await;
    assert!(matches!(answer, Err(RequestError::NotLeading)));
    assert!(!sent.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_slow_write_continues_while_the_leadership_is_renewed() {
    let (client, _) = server(25);
    let (guard, leadership) = Leadership::elected();
    let executor =
        Executor::new(client, "manager", Bounds::default(), Writes::Sent).within(leadership);
    let write = tokio::spawn(async move { executor.write(&write(), Class::Release).await });
    for _ in 0..14 {
        guard.extend(Instant::now() + seconds(10));
        sleep(seconds(2)).await;
    }
    write.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_wakes_writers_and_the_beginning_wakes_waiting_tasks() {
    let (guard, leadership) = Leadership::elected();
    let waits = tokio::spawn({
        let leadership = leadership.clone();
        async move { leadership.begun().await }
    });
    sleep(seconds(100)).await;
    assert!(!waits.is_finished());
    guard.extend(Instant::now() + seconds(10));
    waits.await.unwrap();
    let ended = tokio::spawn({
        let leadership = leadership.clone();
        async move {
            leadership.ended().await;
            Instant::now()
        }
    });
    sleep(seconds(1)).await;
    let now = Instant::now();
    guard.end();
    assert_eq!(ended.await.unwrap(), now);
    assert!(!leadership.may_write());
}

#[tokio::test(start_paused = true)]
async fn without_an_election_the_leadership_never_ends() {
    let leadership = Leadership::unlimited();
    assert!(leadership.may_write());
    leadership.begun().await;
    assert!(
        timeout(seconds(1_000_000), leadership.ended())
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_ends_the_leadership() {
    let (guard, leadership) = Leadership::elected();
    guard.extend(Instant::now() + seconds(10));
    drop(guard);
    assert!(!leadership.may_write());
    leadership.ended().await;
    assert!(timeout(seconds(1_000), leadership.begun()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn no_write_begins_at_the_end_of_the_leadership() {
    let (guard, leadership) = Leadership::elected();
    guard.extend(Instant::now() + seconds(10));
    assert!(leadership.may_write());
    tokio::time::advance(seconds(10)).await;
    assert!(!leadership.may_write());
    // Its begin is waited for, as a new leadership may follow.
    let begun = timeout(seconds(60), leadership.begun()).await;
    assert!(begun.is_err());
}
