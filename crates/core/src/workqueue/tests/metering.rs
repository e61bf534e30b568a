//! The published metrics and their names.

use ::metrics::with_local_recorder;
use tokio::time::advance;

use super::*;
use crate::recorded::Recorded;
use crate::workqueue::{Backoff, Outcome, Priority, Workers};
use Priority::{Normal, Release, Resync};

fn metered() -> (Recorded, WorkQueue<&'static str>) {
    let recorded = Recorded::default();
    let queue = with_local_recorder(&recorded, || WorkQueue::new("pods"));
    (recorded, queue)
}

#[tokio::test(start_paused = true)]
async fn workers_publish_the_metrics_twice_a_second() {
    let (recorded, queue) = metered();
    let workers = Workers::spawn(1, queue.clone(), |_| async { Outcome::Done });
    queue.add_after("a", Normal, S(3600));
    tokio::time::sleep(MS(499)).await;
    queue.add("b", Normal);
    let adds = || recorded.counter("workqueue_adds_total{name=pods}");
    tokio::time::sleep(MS(2)).await;
    assert_eq!(adds(), 1);
    workers.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn depth_counts_ready_keys_and_reruns_by_priority_but_no_delayed_ones() {
    let (recorded, queue) = metered();
    queue.add("a", Release);
    queue.add("b", Normal);
    queue.add("c", Normal);
    queue.add("c", Normal);
    queue.add_after("d", Resync, S(1));
    let item = take(&queue);
    queue.add("a", Resync);
    queue.refresh_metrics();
    let depth = || {
        ["release", "normal", "resync"].map(|priority| {
            recorded.gauge(&format!("workqueue_depth{{name=pods,priority={priority}}}"))
        })
    };
    assert_eq!(depth(), [0.0, 2.0, 1.0]);
    let snapshot = queue.snapshot();
    assert_eq!(
        Priority::ALL.map(|priority| snapshot.depth(priority)),
        snapshot.depth
    );
    assert_eq!((snapshot.depth(Normal), snapshot.ready()), (2, 3));
    assert_eq!(queue.name(), "pods");
    item.done();
    advance(S(1)).await;
    assert_eq!(all(&queue), ["b", "c", "a", "d"]);
    queue.refresh_metrics();
    assert_eq!(depth(), [0.0, 0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn adds_count_keys_that_became_ready_and_retries_count_failures() {
    let (recorded, queue) = metered();
    queue.add("a", Normal);
    queue.add("a", Normal);
    let item = take(&queue);
    queue.add("a", Normal);
    queue.add("a", Normal);
    item.done();
    take(&queue).retry(Backoff::CONFLICT);
    queue.refresh_metrics();
    assert_eq!(
        recorded.counter("workqueue_adds_total{name=pods}"),
        2,
        "the delay is not over"
    );
    queue.next().await.expect("not shut down").succeeded();
    queue.refresh_metrics();
    queue.refresh_metrics();
    assert_eq!(recorded.counter("workqueue_adds_total{name=pods}"), 3);
    assert_eq!(recorded.counter("workqueue_retries_total{name=pods}"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_becomes_ready_counts_as_one_add() {
    let (recorded, queue) = metered();
    let now = |priority: &str| {
        queue.refresh_metrics();
        (
            recorded.gauge(&format!("workqueue_depth{{name=pods,priority={priority}}}")),
            recorded.counter("workqueue_adds_total{name=pods}"),
        )
    };
    // By an add without delay, with a higher priority.
    queue.add_after("a", Normal, S(3600));
    assert_eq!(now("normal"), (0.0, 0));
    queue.add("a", Release);
    assert_eq!((now("normal"), now("release")), ((0.0, 1), (1.0, 1)));
    take(&queue).succeeded();
    assert_eq!(now("release"), (0.0, 1));
    // By the end of its delay, with another add at that time.
    for round in 2..4 {
        queue.add_after("b", Resync, MS(500));
        advance(S(1)).await;
        queue.add("b", Resync);
        assert_eq!(now("resync"), (1.0, round));
        take(&queue).succeeded();
        assert_eq!(now("resync"), (0.0, round));
    }
}

#[tokio::test(start_paused = true)]
async fn durations_are_reported_with_the_next_refresh() {
    let (recorded, queue) = metered();
    queue.add("a", Normal);
    advance(MS(250)).await;
    let item = take(&queue);
    advance(MS(1500)).await;
    item.done();
    // The gauges show the elapsed time; finished durations wait for the refresh.
    advance(MS(1000)).await;
    queue.refresh_metrics();
    queue.refresh_metrics();
    assert_eq!(
        recorded.samples("workqueue_queue_duration_seconds{name=pods}"),
        [0.25]
    );
    assert_eq!(
        recorded.samples("workqueue_work_duration_seconds{name=pods}"),
        [1.5]
    );
}

#[tokio::test(start_paused = true)]
async fn many_durations_are_reported_without_a_refresh() {
    let (recorded, queue) = metered();
    for _ in 0..200 {
        queue.add("a", Normal);
        take(&queue).done();
    }
    for series in ["queue", "work"] {
        let series = format!("workqueue_{series}_duration_seconds{{name=pods}}");
        let reported = recorded.samples(&series).len();
        assert!((128..=200).contains(&reported), "{series}: {reported}");
    }
}

#[tokio::test(start_paused = true)]
async fn unfinished_work_rises_while_work_hangs_and_falls_when_it_ends() {
    let (recorded, queue) = metered();
    queue.add("a", Normal);
    queue.add("b", Normal);
    let unfinished = || {
        queue.refresh_metrics();
        (
            recorded.gauge("workqueue_unfinished_work_seconds{name=pods}"),
            recorded.gauge("workqueue_longest_running_processor_seconds{name=pods}"),
        )
    };
    let a = take(&queue);
    advance(S(2)).await;
    let b = take(&queue);
    advance(S(3)).await;
    assert_eq!(unfinished(), (8.0, 5.0));
    advance(S(1)).await;
    assert_eq!(unfinished(), (10.0, 6.0));
    a.done();
    assert_eq!(unfinished(), (4.0, 4.0));
    b.done();
    assert_eq!(unfinished(), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn every_series_exists_from_the_start() {
    let (recorded, queue) = metered();
    queue.refresh_metrics();
    let [counters, gauges, histograms] = recorded.names();
    assert_eq!(
        counters,
        [
            "workqueue_adds_total{name=pods}",
            "workqueue_retries_total{name=pods}"
        ]
    );
    assert_eq!(
        gauges,
        [
            "workqueue_depth{name=pods,priority=normal}",
            "workqueue_depth{name=pods,priority=release}",
            "workqueue_depth{name=pods,priority=resync}",
            "workqueue_longest_running_processor_seconds{name=pods}",
            "workqueue_unfinished_work_seconds{name=pods}",
        ]
    );
    assert_eq!(
        histograms,
        [
            "workqueue_queue_duration_seconds{name=pods}",
            "workqueue_work_duration_seconds{name=pods}"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_with_metering_off_reports_nothing() {
    let recorded = Recorded::default();
    let queue = with_local_recorder(&recorded, queue);
    queue.add("a", Normal);
    assert_eq!(all(&queue), ["a"]);
    queue.refresh_metrics();
    assert!(recorded.names().iter().all(Vec::is_empty));
}
