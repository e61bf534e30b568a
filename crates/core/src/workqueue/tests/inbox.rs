//! Operations while the queue's lock is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::{Ageing, silent};
use crate::workqueue::Priority::{Normal, Release};
use crate::workqueue::WorkQueue;

/// Runs `meanwhile` while another thread holds the lock.
fn while_taken(queue: &WorkQueue<&'static str>, meanwhile: impl FnOnce()) {
    queue.shared.inbox.with(|_| {
        meanwhile();
        ((), Vec::new())
    });
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_add_while_the_lock_is_taken_wakes_a_waiter_when_it_is_released() {
    let queue = silent(Ageing::default());
    let woken = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut next = Box::pin(queue.next());
    let poll = next.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll.is_pending());
    while_taken(&queue, || {
        queue.add("a", Normal);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    });
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(Some(item)) = next.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("the key was left behind");
    };
    assert_eq!(*item.key(), "a");
}

#[test]
fn operations_submitted_while_the_lock_is_taken_keep_their_order() {
    let queue = silent(Ageing::default());
    queue.add("a", Normal);
    let item = queue.try_next().expect("a key is ready");
    while_taken(&queue, || {
        queue.add("b", Normal);
        queue.add("a", Release);
        item.succeeded();
        queue.add("c", Normal);
        queue.add("b", Release);
    });
    let order: Vec<_> = std::iter::from_fn(|| queue.try_next().map(|item| *item.key())).collect();
    assert_eq!(order, ["a", "b", "c"]);
}

#[test]
fn pending_operations_are_visible_to_every_access() {
    let queue = silent(Ageing::default());
    queue.add("a", Normal);
    queue.add("b", Release);
    assert_eq!(queue.shared.inbox.pending_len(), 2);
    assert_eq!(queue.snapshot().depth, [1, 1, 0]);
    assert_eq!(queue.shared.inbox.pending_len(), 0);
    let item = queue.try_next().expect("a key is ready");
    assert_eq!(*item.key(), "b");
    while_taken(&queue, || {
        item.succeeded();
        assert_eq!(queue.shared.inbox.pending_len(), 1);
    });
    assert_eq!(queue.snapshot().processing, 0);
}

#[test]
fn the_end_of_work_is_applied_at_once_if_the_lock_is_free() {
    let queue = silent(Ageing::default());
    queue.add("a", Normal);
    let item = queue.try_next().expect("a key is ready");
    queue.add("a", Release);
    item.succeeded();
    // The pending operations were applied before it.
    assert_eq!(queue.shared.inbox.pending_len(), 0);
    let item = queue.try_next().expect("it runs again");
    assert_eq!((*item.key(), item.priority()), ("a", Release));
}

#[test]
fn a_key_that_is_added_repeatedly_takes_no_memory_while_no_worker_runs() {
    let queue = silent(Ageing::default());
    for _ in 0..10_000 {
        queue.add("a", Normal);
        assert!(queue.shared.inbox.pending_len() < 128);
    }
    assert_eq!(queue.snapshot().known, 1);
}

#[tokio::test(start_paused = true)]
async fn no_operation_stays_pending_while_a_waiter_sleeps() {
    let queue = silent(Ageing::default());
    let mut next = Box::pin(queue.next());
    let mut other = Box::pin(queue.next());
    let mut context = Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    queue.add("a", Normal);
    assert_eq!(queue.shared.inbox.pending_len(), 0);
    let Poll::Ready(Some(item)) = next.as_mut().poll(&mut context) else {
        panic!("the key was left behind");
    };
    // The other waiter still sleeps.
    item.succeeded();
    assert_eq!(queue.shared.inbox.pending_len(), 0);
    queue.add("b", Normal);
    assert_eq!(queue.shared.inbox.pending_len(), 0);
    assert!(other.as_mut().poll(&mut context).is_ready());
    // Now no waiter sleeps.
    assert_eq!(queue.snapshot().processing, 0);
    queue.add("c", Normal);
    assert_eq!(queue.shared.inbox.pending_len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_end_of_work_ends_a_drain_even_while_the_lock_is_taken() {
    let queue = silent(Ageing::default());
    queue.add("a", Normal);
    let item = queue.try_next().expect("a key is ready");
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shutdown_with_drain().await }
    });
    tokio::task::yield_now().await;
    assert!(!draining.is_finished());
    while_taken(&queue, || item.succeeded());
    draining.await.unwrap();
}
