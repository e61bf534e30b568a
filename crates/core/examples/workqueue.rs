//! The workqueue alone: it knows nothing of Kubernetes. `cargo run --package belayer-core --example workqueue`.
//!
//! A key is worked on by one worker at a time, however often it is added; failed work backs off by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use belayer_core::{Backoff, Outcome, Priority, WorkQueue, Workers};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let queue = WorkQueue::new("mail");
    queue.add("newsletter", Priority::Resync);
    queue.add("invoice", Priority::Normal);
    queue.add("invoice", Priority::Normal); // merges with the waiting one
    queue.add("password reset", Priority::Release); // the highest priority
    queue.add_after("reminder", Priority::Normal, Duration::from_millis(50));

    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let workers = Workers::spawn(1, queue.clone(), move |mail: &'static str| {
        let attempts = Arc::clone(&counted);
        async move {
            let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
            // The second attempt of all fails: its key waits, the others do not.
            if attempt == 2 {
                println!("{attempt}. {mail}: the server is busy");
                return Outcome::Retry(Backoff::CONFLICT.at_least(Duration::from_millis(10)));
            }
            println!("{attempt}. {mail}: sent");
            Outcome::Done
        }
    });

    // Four mails, one of them twice.
    while attempts.load(Ordering::Relaxed) < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    workers.drain().await; // no new keys; work under way ends
    assert_eq!(queue.failures(&"invoice"), 0);
}
