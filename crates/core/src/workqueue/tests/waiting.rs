//! Which waiter is woken, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, timeout};

use super::*;
use crate::workqueue::Priority;
use Priority::Normal;

/// A waiter that is polled by hand and counts its wake-ups.
struct Waiter<'q> {
    next: BoxFuture<'q, Option<Item<'q, &'static str>>>,
    woken: Arc<Count>,
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'q> Waiter<'q> {
    fn waiting(queue: &'q WorkQueue<&'static str>) -> Self {
        let mut waiter = Self {
            next: queue.next().boxed(),
            woken: Arc::default(),
        };
        assert!(waiter.poll().is_none());
        waiter
    }

    fn poll(&mut self) -> Option<&'static str> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.next.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(item) => item.map(|item| *item.key()),
        }
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn one_waiter_is_woken_per_key_the_longest_waiting_first() {
    let queue = queue();
    let mut waiters = [(); 3].map(|()| Waiter::waiting(&queue));
    queue.add("a", Normal);
    assert_eq!(waiters.each_ref().map(Waiter::woken), [1, 0, 0]);
    queue.add("b", Normal);
    assert_eq!(waiters.each_ref().map(Waiter::woken), [1, 1, 0]);
    assert_eq!(waiters[1].poll(), Some("a"));
    assert_eq!(waiters[0].poll(), Some("b"));
    assert_eq!(waiters[2].woken(), 0);
}

#[tokio::test(start_paused = true)]
async fn merged_adds_wake_no_other_waiter() {
    let queue = queue();
    let waiters = [(); 2].map(|()| Waiter::waiting(&queue));
    queue.add("a", Normal);
    queue.add("a", Priority::Release);
    assert_eq!(waiters.each_ref().map(Waiter::woken), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_wakes_as_many_waiters_as_there_are_keys() {
    let queue = queue();
    let waiters = [(); 3].map(|()| Waiter::waiting(&queue));
    queue.add_all(["a", "b"], Normal);
    assert_eq!(waiters.each_ref().map(Waiter::woken), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_woken_waiter_that_is_dropped_passes_the_key_on() {
    let queue = queue();
    let mut waiters = Vec::from([(); 2].map(|()| Waiter::waiting(&queue)));
    queue.add("a", Normal);
    drop(waiters.remove(0));
    assert_eq!(waiters[0].woken(), 1);
    assert_eq!(waiters[0].poll(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_waiter_that_is_dropped_is_not_woken() {
    let queue = queue();
    let mut waiters = Vec::from([(); 2].map(|()| Waiter::waiting(&queue)));
    drop(waiters.remove(0));
    queue.add("a", Normal);
    assert_eq!(waiters[0].woken(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_key_was_taken_keeps_its_place() {
    let queue = queue();
    let mut waiters = [(); 2].map(|()| Waiter::waiting(&queue));
    queue.add("a", Normal);
    take(&queue).done();
    assert_eq!(waiters[0].poll(), None);
    queue.add("b", Normal);
    assert_eq!(waiters.each_ref().map(Waiter::woken), [2, 0]);
    assert_eq!(waiters[0].poll(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_work_wakes_a_waiter_for_the_rerun() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    let waiter = Waiter::waiting(&queue);
    queue.add("a", Normal);
    assert_eq!(waiter.woken(), 0);
    item.done();
    assert_eq!(waiter.woken(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_wakes_one_waiter_when_it_ends() {
    let queue = queue();
    let mut waiters = [(); 3].map(|()| Waiter::waiting(&queue));
    queue.add_after("a", Normal, MS(10));
    // One waiter is woken to set its timer.
    assert_eq!(waiters.each_ref().map(Waiter::woken), [1, 0, 0]);
    assert_eq!(waiters[0].poll(), None);
    advance(MS(11)).await;
    assert_eq!(waiters.each_ref().map(Waiter::woken), [2, 0, 0]);
    assert_eq!(waiters[0].poll(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_resets_the_timer_of_the_timekeeper() {
    let queue = queue();
    queue.add_after("late", Normal, S(60));
    let start = Instant::now();
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|item| *item.key()) }
    });
    yield_now().await;
    queue.add_after("early", Normal, S(1));
    assert_eq!(waiter.await.expect("no panic"), Some("early"));
    assert_eq!(start.elapsed(), S(1));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_that_is_added_without_delay_wakes_its_waiter_at_once() {
    let queue = queue();
    let mut waiter = Waiter::waiting(&queue);
    queue.add_after("a", Normal, S(60));
    assert_eq!(waiter.poll(), None);
    let woken = waiter.woken();
    queue.add("a", Normal);
    assert_eq!(waiter.woken(), woken + 1);
    assert_eq!(waiter.poll(), Some("a"));
    advance(S(61)).await;
    assert!(nothing_ready(&queue), "it was the same key");
}

#[tokio::test(start_paused = true)]
async fn when_the_timekeeper_is_dropped_another_waiter_becomes_timekeeper() {
    let queue = queue();
    queue.add_after("a", Normal, S(1));
    let first = Waiter::waiting(&queue);
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|item| *item.key()) }
    });
    yield_now().await;
    drop(first);
    let key = timeout(S(2), second)
        .await
        .expect("another waiter is the timekeeper");
    assert_eq!(key.expect("no panic"), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn when_the_timekeeper_gets_a_key_another_waiter_becomes_timekeeper() {
    let queue = queue();
    queue.add_after("later", Normal, S(1));
    let mut keys: Vec<_> = Vec::new();
    let waiters = [(); 2].map(|()| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let item = queue.next().await.expect("not shut down");
            *item.key()
        })
    });
    yield_now().await;
    queue.add("now", Normal);
    for waiter in waiters {
        keys.push(
            timeout(S(2), waiter)
                .await
                .expect("in time")
                .expect("no panic"),
        );
    }
    assert_eq!(keys, ["now", "later"]);
}

#[tokio::test(start_paused = true)]
async fn a_loop_over_a_full_queue_yields_to_its_runtime() {
    let queue: WorkQueue<u32> = silent(Ageing::default());
    queue.add(0, Normal);
    let endless = tokio::spawn({
        let queue = queue.clone();
        async move {
            while let Some(item) = queue.next().await {
                item.again(S(0));
            }
        }
    });
    // On this single thread the test can only continue if the loop yields.
    yield_now().await;
    queue.shutdown();
    timeout(S(1), endless)
        .await
        .expect("in time")
        .expect("no panic");
}
