//! Priorities, FIFO, ageing.

use tokio::time::advance;

use super::*;
use crate::workqueue::Priority;
use Priority::{Normal, Release, Resync};

#[test]
fn priorities_are_ordered_by_urgency() {
    assert!(Release < Normal && Normal < Resync);
    assert_eq!(Normal.highest(Resync), Normal);
    assert_eq!(Normal.highest(Release), Release);
}

#[tokio::test(start_paused = true)]
async fn higher_priorities_first_and_fifo_inside_a_priority() {
    let queue = queue();
    queue.add("s1", Resync);
    queue.add("n1", Normal);
    queue.add("r1", Release);
    queue.add("s2", Resync);
    queue.add("n2", Normal);
    queue.add("r2", Release);
    assert_eq!(all(&queue), ["r1", "r2", "n1", "n2", "s1", "s2"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_its_order_and_merges() {
    let queue = silent(Ageing::default());
    queue.add(700, Release);
    queue.add_all((0..1000).chain(0..1000), Resync);
    let mut order = Vec::new();
    while let Some(item) = queue.try_next() {
        order.push(*item.key());
        item.succeeded();
    }
    let expected: Vec<_> = std::iter::once(700)
        .chain((0..1000).filter(|key| *key != 700))
        .collect();
    assert_eq!(order, expected);
}

#[tokio::test(start_paused = true)]
async fn adding_again_does_not_move_a_key_back() {
    let queue = queue();
    queue.add("a", Normal);
    queue.add("b", Normal);
    queue.add("a", Normal);
    assert_eq!(all(&queue), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_worked_on_does_not_block_the_next() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    queue.add("a", Release);
    queue.add("b", Normal);
    assert_eq!(all(&queue), ["b"]);
    item.done();
    assert_eq!(all(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_runs_again_joins_its_priority_when_its_work_ends() {
    let queue = queue();
    queue.add("a", Normal);
    let item = take(&queue);
    queue.add("a", Normal);
    queue.add("b", Normal);
    item.done();
    queue.add("c", Normal);
    assert_eq!(all(&queue), ["b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_priority_rises_goes_to_the_end() {
    let queue = queue();
    for (key, priority) in [("a", Resync), ("b", Resync), ("c", Resync), ("r", Release)] {
        queue.add(key, priority);
    }
    queue.add("b", Release);
    assert_eq!(all(&queue), ["r", "b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_become_ready_in_the_order_of_their_times() {
    let queue = queue();
    queue.add_after("third", Normal, MS(30));
    queue.add_after("first", Normal, MS(10));
    queue.add_after("second", Normal, MS(20));
    queue.add_after("second, added later", Normal, MS(20));
    queue.add_after("urgent", Release, MS(30));
    advance(MS(30)).await;
    queue.add("now", Normal);
    assert_eq!(
        all(&queue),
        [
            "urgent",
            "first",
            "second",
            "second, added later",
            "third",
            "now"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_delayed_keys_become_ready_in_the_order_of_their_times() {
    let queue: WorkQueue<u64> = silent(Ageing::default());
    // 101 is a prime number: every time once, in no order.
    for step in 1..=100 {
        let due = step * 38 % 101;
        queue.add_after(due, Normal, MS(due));
    }
    // Some move forward, from any place.
    for due in (1..=100).filter(|due| due % 7 == 0) {
        queue.add_after(due, Normal, MS(due - 7));
        queue.add_after(due, Normal, MS(due - 3));
    }
    let mut ready = Vec::new();
    for _ in 0..100 {
        advance(MS(1)).await;
        while let Some(item) = queue.try_next() {
            ready.push(*item.key());
            item.succeeded();
        }
    }
    let mut expected: Vec<u64> = (1..=100).collect();
    expected.sort_by_key(|due| {
        if due % 7 == 0 {
            (due - 7, 1)
        } else {
            (*due, 0)
        }
    });
    assert_eq!(ready, expected);
}

#[tokio::test(start_paused = true)]
async fn priority_is_strict_until_a_key_is_overdue() {
    let queue = queue();
    queue.add("slow", Resync);
    advance(S(60)).await;
    for _ in 0..100 {
        queue.add("urgent", Release);
        let item = take(&queue);
        assert_eq!(*item.key(), "urgent");
        item.succeeded();
    }
    advance(MS(1)).await;
    queue.add("urgent", Release);
    assert_eq!(
        *take(&queue).key(),
        "slow",
        "the overdue key gets the next turn"
    );
}

/// Serves `turns` keys under constant release load, 1 ms each, and counts them by priority.
async fn under_release_load(queue: &WorkQueue<u32>, turns: u32) -> [u32; 3] {
    let mut served = [0; 3];
    for turn in 0..turns {
        // At least two urgent keys wait.
        queue.add(1_000_000 + turn, Release);
        queue.add(2_000_000 + turn, Release);
        let item = queue.try_next().expect("a key is ready");
        served[item.priority() as usize] += 1;
        item.succeeded();
        advance(MS(1)).await;
    }
    served
}

#[tokio::test(start_paused = true)]
async fn every_priority_is_served_under_constant_release_load() {
    let queue = silent(Ageing {
        normal: MS(50),
        resync: MS(100),
        one_in: 8,
    });
    queue.add_all(0..500, Normal);
    queue.add_all(500..1000, Resync);
    let [release, normal, resync] = under_release_load(&queue, 1600).await;
    assert!(
        normal >= 50 && resync >= 50,
        "{normal} normal and {resync} resync keys served"
    );
    assert!(normal + resync <= 200, "an eighth of the turns at most");
    assert!(release >= 1400, "{release} of 1600 turns");
}

#[tokio::test(start_paused = true)]
async fn resync_is_served_although_normal_keys_are_always_overdue() {
    let queue = silent(Ageing {
        normal: MS(10),
        resync: MS(20),
        one_in: 4,
    });
    queue.add_all(0..10_000, Normal);
    queue.add_all(10_000..10_010, Resync);
    let mut turns = 0;
    while queue.snapshot().depth[Resync.index()] > 0 {
        queue.try_next().expect("a key is ready").succeeded();
        advance(MS(1)).await;
        turns += 1;
        assert!(turns < 200, "the resync priority starves");
    }
}

#[tokio::test(start_paused = true)]
async fn without_ageing_priority_is_strict() {
    let queue = silent(Ageing {
        one_in: 0,
        ..Ageing::default()
    });
    queue.add_all(0..10, Resync);
    advance(S(3600)).await;
    assert_eq!(under_release_load(&queue, 200).await, [200, 0, 0]);
}
