//! The ends of watches and of the informer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use rstest::rstest;
use tokio_util::sync::CancellationToken;

use super::server::*;
use crate::informer::{Event, Informer, InformerState, StreamingList, WaitError};
use crate::logged::Log;
use crate::slim::OwnerMeta;

/// Counts the open watches.
#[derive(Clone, Default)]
struct Open(Arc<AtomicUsize>);

struct Reading(Open);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Open {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// A watch that sends these events and stays open.
    fn watch(&self, events: &[String]) -> Reply {
        self.0.fetch_add(1, Ordering::SeqCst);
        let reading = Reading(self.clone());
        let lines: Vec<io::Result<Bytes>> = events
            .iter()
            .map(|event| Ok(Bytes::from(format!("{event}\n"))))
            .collect();
        let open = stream::iter(lines).chain(stream::pending());
        Reply::Body(
            open.map(move |line| {
                let _ = &reading;
                line
            })
            .boxed(),
        )
    }
}

#[rstest]
#[case::with_a_status(error_status(500, "InternalError"))]
#[case::that_is_too_old(error_status(410, "Expired"))]
#[case::with_an_object_that_is_no_status(object("a", "u1", 3))]
#[tokio::test(start_paused = true)]
async fn a_watch_that_sends_an_error_is_closed(#[case] error: String) {
    let open = Open::default();
    let failed = open.watch(&[event("ERROR", &error)]);
    let mut run = by_pages([page(5, &[]), failed, Reply::Hang]);
    run.expect_events(&["at 5", "synced"]).await;
    run.server.asked(3).await;
    assert_eq!(open.count(), 0);
    assert_eq!(run.store.resource_version().get(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_closed_when_the_informer_is_stopped() {
    let open = Open::default();
    let mut run = by_pages([page(5, &[]), open.watch(&[added(object("a", "u1", 6))])]);
    run.expect_events(&["at 5", "synced", "added a:u1@6", "at 6"])
        .await;
    assert_eq!(open.count(), 1);
    run.stop.cancel();
    let mut state = run.store.watch_state();
    let stopped = state
        .wait_for(|state| *state == InformerState::Stopped)
        .await;
    assert!(stopped.is_ok());
    tokio::task::yield_now().await;
    assert_eq!(open.count(), 0);
    assert_eq!(run.version("a"), Some(6), "the store keeps what it has");
}

#[tokio::test(start_paused = true)]
async fn an_informer_stopped_before_it_began_sends_no_request() {
    let server = Server::answers([page(5, &[])]);
    let (informer, store) = describe::<OwnerMeta>(&server).build();
    let stop = CancellationToken::new();
    stop.cancel();
    informer.run(stop).await;
    assert!(server.requests().is_empty());
    assert_eq!(store.synced().await, Err(WaitError::Stopped));
}

/// A task that is aborted before its first poll drops the informer, too.
#[tokio::test(start_paused = true)]
async fn an_informer_dropped_before_it_ran_stops_the_store() {
    let server = Server::answers([page(5, &[])]);
    let (informer, store) = describe::<OwnerMeta>(&server).build();
    drop(informer);
    let synced = tokio::time::timeout(Duration::from_secs(60), store.synced()).await;
    assert_eq!(synced.expect("an answer"), Err(WaitError::Stopped));
}

/// A reader must not use a store that is no longer updated.
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_stops_the_store() {
    let server = Server::answers([page(5, &[object("a", "u1", 3)])]);
    let (mut informer, store): (Informer<OwnerMeta>, _) = describe(&server)
        .streaming_list(StreamingList::Never)
        .build();
    informer.add_handler(Arc::new(|_: &Event<OwnerMeta>| panic!("on purpose")));
    let ended = tokio::spawn(informer.run(CancellationToken::new())).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    assert_eq!(store.state(), InformerState::Stopped);
    assert_eq!(store.synced().await, Err(WaitError::Stopped));
}

/// A watch without an event that breaks after this time.
fn cut_after(time: Duration) -> Reply {
    let cut = async move {
        tokio::time::sleep(time).await;
        Err(io::Error::other("cut"))
    };
    Reply::Body(stream::once(cut).boxed())
}

/// A proxy that cuts quiet connections: no change waits, and this is no outage.
#[rstest]
#[case::after_twenty_seconds(Duration::from_secs(20))]
#[case::after_three_seconds(Duration::from_secs(3))]
#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_after_it_worked_is_reopened_soon(#[case] quiet: Duration) {
    let log = Log::kept_from(tracing::Level::INFO);
    let cuts = (0..60).map(|_| cut_after(quiet));
    let run = by_pages([page(5, &[]), Reply::Refuse].into_iter().chain(cuts));
    for cut in 3..62 {
        run.server.asked(cut).await;
        if let InformerState::Failing { since, .. } = run.store.state() {
            assert!(since.elapsed() < Duration::from_secs(1), "{cut}");
        }
    }
    let times = run.server.times();
    for pair in times[2..].windows(2) {
        let pause = pair[1] - pair[0] - quiet;
        assert!(pause < Duration::from_millis(810), "{pause:?}");
    }
    assert_eq!(log.lines("WARN").len(), 1, "the refusal: {}", log.text());
    assert_eq!(log.lines("work again").len(), 1);
}

/// Some servers end the stream without a line end.
#[tokio::test(start_paused = true)]
async fn the_last_event_of_a_watch_counts_without_a_line_end() {
    let lines = |events: &[String]| body(events.join("\n"));
    let mut run = by_pages([
        page(5, &[]),
        lines(&[added(object("a", "u1", 6)), added(object("b", "u2", 7))]),
        lines(&[event("ERROR", &error_status(410, "Expired"))]),
        page(9, &[object("a", "u1", 6)]),
        Reply::Hang,
    ]);
    run.expect_events(&[
        "at 5",
        "synced",
        "added a:u1@6",
        "at 6",
        "added b:u2@7",
        "at 7",
    ])
    .await;
    run.expect_events(&["vanished b:u2@7", "at 9", "relisted"])
        .await;
    assert!(run.server.requests()[2].ends_with("resourceVersion=7"));
    run.is_quiet_for(Duration::from_secs(30)).await;
}
