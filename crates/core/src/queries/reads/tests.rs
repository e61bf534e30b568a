use std::time::Duration;

use super::*;

fn namespace(name: &str) -> Arc<str> {
    Arc::from(name)
}

/// Starts reads of a namespace that never end, in tasks that can be cancelled.
fn endless(
    reads: &LiveReads,
    name: &str,
    count: usize,
    begun: &Arc<Mutex<usize>>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let read = || {
        let (reads, name, begun) = (reads.clone(), namespace(name), Arc::clone(begun));
        tokio::spawn(async move {
            let _slot = reads.slot(&name).await;
            *begun.lock() += 1;
            std::future::pending::<()>().await;
        })
    };
    std::iter::repeat_with(read).take(count).collect()
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn l1_live_reads_are_limited_and_a_new_namespace_gets_a_slot() {
    let reads = LiveReads::default();
    let (hot, warm) = (Arc::default(), Arc::default());
    let _hot = endless(&reads, "hot", 1_000, &hot);
    settle().await;
    assert_eq!(*hot.lock(), IN_FLIGHT / 2);
    let _warm = endless(&reads, "warm", 1_000, &warm);
    settle().await;
    assert!(*warm.lock() >= IN_FLIGHT / 4, "{}", warm.lock());
    for n in 0..40 {
        let begun = Arc::default();
        let _one = endless(&reads, &format!("ns-{n}"), 1, &begun);
        settle().await;
        assert!(n >= 8 || *begun.lock() == 1, "namespace {n} got no slot");
        assert!(reads.slots.lock().taken.values().sum::<usize>() <= IN_FLIGHT);
    }
}

#[tokio::test(start_paused = true)]
async fn l1_namespaces_take_turns() {
    let reads = LiveReads::default();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut held = Vec::new();
    for n in 0..IN_FLIGHT {
        held.push(reads.slot(&namespace(&format!("full-{n}"))).await);
    }
    for name in ["hot", "hot", "hot", "hot", "quiet"] {
        let (reads, order) = (reads.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            let slot = reads.slot(&namespace(name)).await;
            order.lock().push(name);
            tokio::task::yield_now().await;
            drop(slot);
        });
        settle().await;
    }
    assert!(order.lock().is_empty());
    drop(held.pop());
    settle().await;
    assert_eq!(*order.lock(), ["hot", "quiet", "hot", "hot", "hot"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_read_takes_no_slot() {
    let reads = LiveReads::default();
    let begun = Arc::default();
    let tasks = endless(&reads, "hot", 10_000, &begun);
    settle().await;
    let held = reads.slot(&namespace("other")).await;
    for task in &tasks {
        task.abort();
    }
    settle().await;
    drop(held);
    settle().await;
    let slots = reads.slots.lock();
    assert_eq!((slots.free, slots.waiting.len()), (IN_FLIGHT, 0));
    assert!(slots.taken.is_empty());
}
