use super::*;

fn limits(qps: f64, burst: u32) -> Arc<Limits> {
    Limits::new(Bounds {
        qps,
        burst,
        concurrent_releases: 2,
    })
}

/// Many of `class` wait at once; each says when it is served.
fn crowd(limits: &Arc<Limits>, class: Class, size: usize) -> Arc<Mutex<Vec<Instant>>> {
    let served = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..size {
        let (limits, served) = (Arc::clone(limits), Arc::clone(&served));
        tokio::spawn(async move {
            let _ = limits.leave(class, Arc::default).await;
            served.lock().push(Instant::now());
        });
    }
    served
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The bucket of `limits` is empty.
async fn emptied(qps: f64) -> Arc<Limits> {
    let limits = limits(qps, 1);
    let _ = limits.leave(Class::Write, Arc::default).await;
    limits
}

#[tokio::test(start_paused = true)]
async fn l1_a_release_never_waits_for_a_token() {
    let limits = emptied(1.0).await;
    let waiting = crowd(&limits, Class::Evidence, 10_000);
    seconds(1).await;
    let begun = Instant::now();
    for _ in 0..1000 {
        let _ = limits.leave(Class::Release, Arc::default).await;
        let _ = limits.charge(Class::Release).await;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(waiting.lock().len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn releases_are_bounded_by_concurrency() {
    let limits = limits(1.0, 1);
    let first = limits.leave(Class::Release, Arc::default).await;
    let _second = limits.leave(Class::Release, Arc::default).await;
    let third = tokio::time::timeout(
        Duration::from_secs(5),
        limits.leave(Class::Release, Arc::default),
    );
    assert!(third.await.is_err());
    drop(first);
    let _ = limits.leave(Class::Release, Arc::default).await;
}

#[tokio::test(start_paused = true)]
async fn other_traffic_goes_at_the_rate_after_the_burst() {
    let limits = limits(10.0, 5);
    let begun = Instant::now();
    for _ in 0..25 {
        let _ = limits.leave(Class::Write, Arc::default).await;
    }
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(1950)..Duration::from_millis(2100)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn l1_each_class_gets_its_share_of_the_bucket() {
    let limits = emptied(100.0).await;
    let crowds =
        [Class::Evidence, Class::Write, Class::Notice].map(|class| crowd(&limits, class, 10_000));
    seconds(100).await;
    let [evidence, write, notice] = crowds.map(|served| served.lock().len());
    assert!(evidence >= 4_950, "{evidence}");
    assert!(write >= 1_980, "{write}");
    assert!(notice >= 1_000, "{notice}");
    let all = evidence + write + notice;
    assert!((9_900..=10_010).contains(&all), "{all}");
}

#[tokio::test(start_paused = true)]
async fn l1_what_a_class_leaves_is_lent_to_the_others() {
    for class in [Class::Evidence, Class::Write, Class::Notice] {
        let limits = emptied(100.0).await;
        let served = crowd(&limits, class, 10_000);
        seconds(10).await;
        let served = served.lock().len();
        assert!((980..=1_001).contains(&served), "{class:?}: {served}");
    }
}

/// Whoever waited for nothing has saved up nothing either: what it is owed begins with its first
/// request.
#[tokio::test(start_paused = true)]
async fn l1_a_loan_is_not_paid_back() {
    let limits = emptied(100.0).await;
    let writes = crowd(&limits, Class::Write, 10_000);
    seconds(30).await;
    let before = writes.lock().len();
    let reads = crowd(&limits, Class::Evidence, 10_000);
    seconds(10).await;
    let writes = writes.lock().len() - before;
    let reads = reads.lock().len();
    assert!(writes >= 198 && reads >= 495, "{writes} and {reads}");
}

#[tokio::test(start_paused = true)]
async fn l1_nobody_wakes_but_who_is_served() {
    let limits = emptied(100.0).await;
    let few = crowd(&limits, Class::Evidence, 10);
    seconds(5).await;
    assert_eq!(few.lock().len(), 10);
    let wakes_of_few = limits.bucket.lock().wake_ups;
    let many = crowd(&limits, Class::Evidence, 10_000);
    seconds(10).await;
    let served = many.lock().len();
    let wakes = limits.bucket.lock().wake_ups - wakes_of_few;
    assert!(wakes_of_few <= 12, "{wakes_of_few} wake-ups for 10");
    assert!(
        wakes <= served as u64 + 10,
        "{wakes} wake-ups for {served} of 10,000 that waited"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_who_waits() {
    let limits = emptied(1.0).await;
    let waits = crowd(&limits, Class::Write, 1);
    tokio::task::yield_now().await;
    limits.bucket.lock().tokens = 1.0;
    assert!(waits.lock().is_empty() && !limits.may_begin());
    seconds(2).await;
    assert!(waits.lock().len() == 1 && limits.may_begin());
}

#[tokio::test(start_paused = true)]
async fn who_is_cancelled_costs_nobody_a_token() {
    let limits = emptied(10.0).await;
    let cancelled: Vec<_> = (0..1_000)
        .map(|_| {
            let limits = Arc::clone(&limits);
            tokio::spawn(async move { limits.leave(Class::Evidence, Arc::default).await })
        })
        .collect();
    seconds(1).await;
    let patient = crowd(&limits, Class::Evidence, 10);
    tokio::task::yield_now().await;
    for task in &cancelled {
        task.abort();
    }
    let begun = Instant::now();
    seconds(2).await;
    let served = patient.lock().clone();
    assert_eq!(served.len(), 10);
    assert!(served[9] - begun <= Duration::from_millis(1_100));
}

/// What work that has begun still has to send goes at once, and the next ones wait for it.
#[tokio::test(start_paused = true)]
async fn what_is_charged_is_paid_by_who_comes_next() {
    let limits = emptied(10.0).await;
    let begun = Instant::now();
    for _ in 0..9 {
        let _ = limits.charge(Class::Write).await;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let _ = limits.leave(Class::Write, Arc::default).await;
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(1_000)..Duration::from_millis(1_010)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_rate_is_no_limit() {
    let limits = limits(0.0, 1);
    let begun = Instant::now();
    for _ in 0..1_000 {
        let _ = limits.leave(Class::Write, Arc::default).await;
        let _ = limits.charge(Class::Write).await;
    }
    assert!(limits.may_begin());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
