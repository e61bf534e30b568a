//! A thousand pods concurrently.

use super::{RECORDS, Yard};

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_that_are_each_rejected_once_all_run() {
    let yard = Yard::new();
    let belayer = yard.run();
    for n in 0..1_000 {
        yard.pod(&format!("web-{n}"));
    }
    let done = |yard: &Yard| {
        let records = yard.list(&RECORDS);
        records.len() == 1_000
            && records
                .iter()
                .all(|record| record["status"]["phase"] == "Started")
    };
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(600);
    while !done(&yard) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not all have started"
        );
        yard.play_all();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    for record in yard.list(&RECORDS) {
        assert_eq!(record["status"]["podStarts"], 2);
        assert_eq!(record["status"]["podRecreated"], 1);
    }
    assert_eq!(yard.creates(), 1_000);
    belayer.stop().await;
}

impl Yard {
    /// As `play`, with one pass over all pods.
    fn play_all(&self) {
        let seen: std::collections::HashSet<String> = self
            .seen
            .borrow()
            .iter()
            .map(|(_, uid, _)| uid.clone())
            .collect();
        for pod in self.list(&belayer_sandbox::Gvr::PODS) {
            if seen.contains(&super::uid(&pod))
                || super::text(&pod, "/metadata/finalizers/0").is_empty()
            {
                continue;
            }
            let name = super::text(&pod, "/metadata/name");
            let attempt = super::text(
                &pod,
                "/metadata/annotations/belayer.dev~1recreation-attempt",
            );
            let fate = if attempt.is_empty() {
                super::Fate::Rejected("OutOfcpu")
            } else {
                super::Fate::Runs
            };
            self.report(&name, fate);
            self.seen.borrow_mut().push((name, super::uid(&pod), fate));
        }
    }
}
