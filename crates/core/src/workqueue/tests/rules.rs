//! One at a time, merging, delays, failures.

use rstest::rstest;
use tokio::time::{Instant, advance};

use super::*;
use crate::workqueue::{Backoff, Priority};
use Priority::{Normal, Release, Resync};

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_runs_once() {
    let queue = queue();
    queue.add("a", Normal);
    queue.add("a", Normal);
    assert_eq!(all(&queue), ["a"]);
    assert_eq!(queue.snapshot().known, 0);
}

#[tokio::test(start_paused = true)]
async fn the_debug_texts_of_a_queue_and_of_a_key_name_them() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    let text = format!("{queue:?} {item:?}");
    for part in ["\"test\"", "key: \"a\"", "Normal", "failures: 0"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// All keys have the same hash.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Colliding(u8);

impl std::hash::Hash for Colliding {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

#[tokio::test(start_paused = true)]
async fn keys_of_the_same_hash_are_different_keys() {
    let queue: WorkQueue<Colliding> = silent(Ageing::default());
    for key in [1, 2, 1] {
        queue.add(Colliding(key), Normal);
    }
    queue.retry(Colliding(3), Normal, Backoff::DENIED);
    assert_eq!(queue.failures(&Colliding(1)), 0);
    assert_eq!(queue.failures(&Colliding(3)), 1);
    let handed_out = [queue.try_next(), queue.try_next(), queue.try_next()];
    let keys = handed_out
        .each_ref()
        .map(|item| Some(item.as_ref()?.key().0));
    assert_eq!(keys, [Some(1), Some(2), None]);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_handed_out_twice_at_once() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    queue.add("a", Release);
    assert!(nothing_ready(&queue));
    item.done();
    assert_eq!(all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_often_while_it_is_processed_runs_once_afterwards_in_the_highest_priority() {
    let queue = queue();
    queue.add("a", Resync);
    let item = take(&queue);
    queue.add("a", Resync);
    queue.add("b", Normal);
    queue.add("a", Release);
    queue.add("a", Normal);
    item.done();
    assert_eq!(all(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_not_added_meanwhile_does_not_run_again() {
    let queue = queue();
    queue.add("a", Normal);
    take(&queue).done();
    assert!(nothing_ready(&queue));
    assert_eq!(queue.snapshot().known, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_item_counts_as_done() {
    let queue = queue();
    queue.add("a", Normal);
    drop(take(&queue));
    assert_eq!(queue.snapshot().processing, 0);
    queue.add("a", Normal);
    assert_eq!(all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_held_by_a_panicking_future_counts_as_done() {
    let queue = queue();
    queue.add("a", Normal);
    let held = queue.clone();
    let task = tokio::spawn(async move {
        let _item = held.next().await;
        panic!("on purpose");
    });
    assert!(task.await.is_err());
    assert_eq!(queue.snapshot().processing, 0);
}

#[tokio::test(start_paused = true)]
async fn an_item_held_by_a_cancelled_future_counts_as_done_and_its_rerun_is_kept() {
    let queue = queue();
    queue.add("a", Normal);
    let held = queue.clone();
    let task = tokio::spawn(async move {
        let _item = held.next().await;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    assert_eq!(queue.snapshot().processing, 1);
    queue.add("a", Normal);
    task.abort();
    assert!(task.await.is_err());
    assert_eq!(all(&queue), ["a"]);
}

/// The add of a waiting key.
#[derive(Clone, Copy)]
enum Add {
    Now(Priority),
    In(Priority, u64),
}

#[rstest]
#[case::two_immediate_adds_keep_the_higher_priority(
    Add::Now(Resync),
    Add::Now(Release),
    Release,
    0
)]
#[case::a_lower_priority_does_not_lower_it(Add::Now(Release), Add::Now(Resync), Release, 0)]
#[case::a_ready_key_is_not_delayed(Add::Now(Normal), Add::In(Normal, 50), Normal, 0)]
#[case::a_delayed_add_raises_a_ready_key(Add::Now(Resync), Add::In(Release, 50), Release, 0)]
#[case::an_immediate_add_ends_a_delay(Add::In(Normal, 50), Add::Now(Normal), Normal, 0)]
#[case::an_immediate_add_of_a_lower_priority_ends_a_delay_in_the_higher(
    Add::In(Release, 50),
    Add::Now(Resync),
    Release,
    0
)]
#[case::the_earlier_second_delay_wins(Add::In(Normal, 50), Add::In(Normal, 20), Normal, 20)]
#[case::the_earlier_first_delay_wins(Add::In(Normal, 20), Add::In(Normal, 50), Normal, 20)]
#[case::the_later_delay_still_raises_the_priority(
    Add::In(Resync, 20),
    Add::In(Release, 50),
    Release,
    20
)]
#[case::no_delay_is_an_immediate_add(Add::In(Normal, 0), Add::In(Normal, 50), Normal, 0)]
#[tokio::test(start_paused = true)]
async fn merging(
    #[case] first: Add,
    #[case] second: Add,
    #[case] priority: Priority,
    #[case] after: u64,
    #[values(false, true)] while_processing: bool,
) {
    let queue = queue();
    let add = |add| match add {
        Add::Now(priority) => queue.add("a", priority),
        Add::In(priority, delay) => queue.add_after("a", priority, MS(delay)),
    };
    let mut held = None;
    if while_processing {
        queue.add("a", Normal);
        held = Some(take(&queue));
    }
    add(first);
    add(second);
    drop(held);
    let asked = Instant::now();
    let item = queue.next().await.expect("not shut down");
    assert_eq!((item.priority(), asked.elapsed()), (priority, MS(after)));
    item.done();
    advance(S(1)).await;
    assert!(nothing_ready(&queue), "merged adds run once");
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_ends_during_processing_causes_a_rerun() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    queue.add_after("a", Normal, MS(20));
    advance(MS(30)).await;
    assert!(nothing_ready(&queue));
    item.done();
    let item = take(&queue);
    assert_eq!(item.waited(), MS(10));
}

#[tokio::test(start_paused = true)]
async fn first_adds_are_never_rate_limited() {
    let queue = silent(Ageing::default());
    for key in 0..10_000 {
        queue.add(key, Normal);
    }
    let start = Instant::now();
    for key in 0..10_000 {
        assert_eq!(*queue.next().await.expect("not shut down").key(), key);
    }
    assert_eq!(start.elapsed(), S(0));
}

#[tokio::test(start_paused = true)]
async fn waited_starts_when_the_key_became_ready() {
    let queue = queue();
    queue.add("a", Resync);
    advance(MS(5)).await;
    queue.add("a", Normal);
    advance(MS(5)).await;
    assert_eq!(
        take(&queue).waited(),
        MS(10),
        "moving up does not restart it"
    );

    queue.add_after("b", Normal, MS(10));
    advance(MS(13)).await;
    assert_eq!(take(&queue).waited(), MS(3), "a delay is not waiting");
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_is_retried_after_the_returned_delay() {
    let queue = queue();
    queue.add("a", Release);
    let delay = take(&queue).retry(Backoff::DENIED);
    assert_eq!(delay, S(30), "the first denial waits for its floor");
    let start = Instant::now();
    let item = queue.next().await.expect("not shut down");
    assert_eq!(start.elapsed(), delay);
    assert_eq!((item.priority(), item.failures()), (Release, 1));
}

#[tokio::test(start_paused = true)]
async fn backoff_grows_with_every_failure_although_the_key_is_added_in_between() {
    let queue = queue();
    let mut longest = Duration::ZERO;
    for failure in 0..40_u32 {
        queue.add("a", Normal);
        let item = take(&queue);
        assert_eq!(item.failures(), failure);
        let delay = item.retry(Backoff::ERROR);
        let ceiling = MS(5).saturating_mul(1 << failure.min(20)).min(S(300));
        assert!(
            delay <= ceiling,
            "failure {failure} drew {delay:?}, over {ceiling:?}"
        );
        longest = longest.max(delay);
    }
    // Each of the last 24 delays is drawn from 5 min.
    assert!(longest > S(1), "the longest was {longest:?}");
    assert_eq!(queue.failures(&"a"), 40);
}

#[tokio::test(start_paused = true)]
async fn attempts_before_the_floor_do_not_double_the_delay() {
    let queue = queue();
    let curve = Backoff::new(S(30), S(600)).at_least(S(30));
    for _ in 0..10 {
        queue.add("a", Normal);
        assert_eq!(take(&queue).retry(curve), S(30));
        advance(S(2)).await;
    }
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        longest = longest.max(queue.next().await.expect("not shut down").retry(curve));
    }
    assert!(longest > S(120), "the longest was {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_keys_that_failed_together() {
    let queue: WorkQueue<u32> = silent(Ageing::default());
    let curve = Backoff::new(S(100), S(100));
    let delays: Vec<_> = (0..1000)
        .map(|key| queue.retry(key, Normal, curve))
        .collect();
    let below = |limit| delays.iter().filter(|delay| **delay < limit).count();
    // Four standard deviations around 250.
    for quarter in [25, 50, 75, 100].map(S) {
        let share = below(quarter) - below(quarter - S(25));
        assert!(
            (195..=305).contains(&share),
            "{share} of 1000 in the quarter before {quarter:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_a_floor_kept_exactly() {
    let queue = queue();
    queue.add("a", Normal);
    assert_eq!(take(&queue).retry(Backoff::CONFLICT.at_least(S(7))), S(7));
    advance(S(7) - Duration::from_nanos(1)).await;
    assert!(nothing_ready(&queue));
    advance(Duration::from_nanos(1)).await;
    assert_eq!(all(&queue), ["a"]);
}

#[rstest]
#[case::success_resets(|item: Item<'_, &'static str>| item.succeeded(), 0)]
#[case::success_with_requeue_resets(|item: Item<'_, &'static str>| item.again(S(1)), 0)]
#[case::done_keeps(|item: Item<'_, &'static str>| item.done(), 1)]
#[case::dropping_keeps(|item: Item<'_, &'static str>| drop(item), 1)]
#[case::another_failure_counts(|item: Item<'_, &'static str>| { item.retry(Backoff::ERROR); }, 2)]
#[tokio::test(start_paused = true)]
async fn failures_after(#[case] completion: fn(Item<'_, &'static str>), #[case] expected: u32) {
    let queue = queue();
    queue.retry("a", Normal, Backoff::ERROR);
    let item = queue.next().await.expect("not shut down");
    completion(item);
    assert_eq!(queue.failures(&"a"), expected);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_leaves_no_entry_and_starts_over() {
    let queue = queue();
    for _ in 0..10 {
        queue.add("a", Normal);
        take(&queue).retry(Backoff::ERROR);
    }
    queue.forget(&"a");
    assert_eq!(queue.failures(&"a"), 0);
    queue
        .next()
        .await
        .expect("forgetting failures does not take the key out")
        .done();
    assert_eq!(queue.snapshot().known, 0);
    assert!(queue.retry("a", Normal, Backoff::ERROR) <= MS(5));
}

#[tokio::test(start_paused = true)]
async fn a_removed_key_waits_no_longer_but_runs_again_if_its_work_was_in_progress() {
    let queue = queue();
    queue.retry("delayed", Normal, Backoff::ERROR);
    queue.add("ready", Release);
    queue.remove(&"delayed");
    queue.remove(&"ready");
    queue.remove(&"unknown");
    assert_eq!(queue.snapshot().known, 0);

    queue.add("a", Normal);
    let item = take(&queue);
    queue.add("a", Normal);
    queue.remove(&"a");
    item.done();
    assert_eq!(*take(&queue).key(), "a");
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_finished_key_are_kept_until_it_is_forgotten() {
    let queue = queue();
    queue.retry("a", Normal, Backoff::ERROR);
    queue.next().await.expect("not shut down").done();
    assert_eq!((queue.failures(&"a"), queue.snapshot().known), (1, 1));
    queue.forget(&"a");
    assert_eq!(queue.snapshot().known, 0);
}

#[tokio::test(start_paused = true)]
async fn again_requeues_with_the_same_priority_after_the_delay() {
    let queue = queue();
    queue.add("a", Release);
    take(&queue).again(S(2));
    assert!(nothing_ready(&queue));
    advance(S(2)).await;
    assert_eq!(take(&queue).priority(), Release);
}

#[tokio::test(start_paused = true)]
async fn again_at_once_goes_to_the_end_of_its_priority() {
    let queue = queue();
    queue.add("a", Normal);
    queue.add("b", Normal);
    take(&queue).again(S(0));
    assert_eq!(all(&queue), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_does_not_overflow() {
    let queue = queue();
    queue.add_after("a", Normal, Duration::MAX);
    queue.retry(
        "b",
        Normal,
        Backoff::new(Duration::MAX, Duration::MAX).at_least(Duration::MAX),
    );
    let next = tokio::time::timeout(S(3600), queue.next()).await;
    assert!(next.is_err());
    assert_eq!(queue.snapshot().delayed, 2);
}

#[tokio::test(start_paused = true)]
async fn a_large_queue_frees_its_memory_after_a_burst() {
    let queue = silent(Ageing::default());
    let inbox = &queue.shared.inbox;
    let capacity = || inbox.read(|state| state.table.entries.capacity());
    queue.add_all(0..20_000, Resync);
    assert!(capacity() >= 20_000);
    while let Some(item) = queue.try_next() {
        item.succeeded();
    }
    queue.add(7, Resync);
    queue.try_next().expect("a key is ready").succeeded();
    assert_eq!(capacity(), 0);
    queue.add(7, Resync);
    assert_eq!(queue.try_next().map(|item| *item.key()), Some(7));
}

/// The resources of a key are freed with it, also in a queue that is never empty.
#[tokio::test(start_paused = true)]
async fn a_finished_key_is_dropped_at_once_or_in_a_batch() {
    let queue: WorkQueue<std::sync::Arc<str>> = silent(Ageing::default());
    let big: std::sync::Arc<str> = "big".into();
    let held = || std::sync::Arc::strong_count(&big) - 1;
    queue.add(std::sync::Arc::clone(&big), Normal);
    queue.try_next().expect("a key is ready").succeeded();
    assert_eq!(held(), 0);
    queue.add(std::sync::Arc::clone(&big), Release);
    queue.add_all((0..1000).map(|n| n.to_string().into()), Normal);
    for _ in 0..100 {
        queue.try_next().expect("a key is ready").succeeded();
    }
    assert_eq!(held(), 0);
}
