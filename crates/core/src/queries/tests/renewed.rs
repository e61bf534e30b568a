//! Answers that are renewed although no key waits for them.

use super::*;

/// A cache with the answer 1, of which no key waits for another one.
async fn answered(answers: impl IntoIterator<Item = u32>) -> World {
    let mut world = world(std::iter::once(1).chain(answers).map(Ok));
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    *world.script.affected.lock() = vec![key("a"), key("b")];
    world
}

impl World {
    fn renew(&self) {
        self.cache.renew(&Q, key("x").shared_namespace());
    }

    /// Lets planned reads end. Returns the number of reads, and the keys woken.
    async fn settled(&mut self) -> (usize, Vec<ObjectKey>) {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let woken = std::iter::from_fn(|| self.woken.try_recv().ok()).collect();
        (self.script.reads.lock().len(), woken)
    }
}

#[tokio::test(start_paused = true)]
async fn a17_a_renewed_answer_wakes_the_keys_that_it_affects() {
    let mut world = answered([2, 2]).await;
    world.renew();
    assert_eq!(world.settled().await, (2, vec![key("a"), key("b")]));
    world.renew();
    assert_eq!(world.settled().await, (3, vec![]), "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn a17_a_waiting_key_that_is_affected_is_woken_once() {
    let mut world = answered([2]).await;
    world.renew();
    world.cache.ask(Q, observer("a", Duration::ZERO).waiter());
    assert_eq!(world.settled().await, (2, vec![key("a"), key("b")]));
}

/// The read under way may not see the change that caused the renewal.
#[tokio::test(start_paused = true)]
async fn a17_an_answer_renewed_during_a_read_is_read_again() {
    let mut world = answered([1, 2]).await;
    world.renew();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.script.reads.lock().len(), 2, "it is under way");
    for _ in 0..5 {
        world.renew();
    }
    assert_eq!(world.settled().await, (3, vec![key("a"), key("b")]));
}

#[tokio::test(start_paused = true)]
async fn a17_many_renewals_keep_the_pace() {
    let mut world = answered([]).await;
    for _ in 0..100 {
        world.renew();
    }
    assert_eq!(world.settled().await.0, 2);
    let reads = world.script.reads.lock().clone();
    // Each read takes a second.
    let pause = reads[1] - reads[0] - Duration::from_secs(1);
    assert!(pause >= Pace::default().min_interval, "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_never_asked_is_not_renewed() {
    let mut world = world([]);
    world.renew();
    assert_eq!(world.settled().await, (0, vec![]));
}
