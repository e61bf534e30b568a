use super::*;

fn limits(qps: f64, burst: u32) -> Arc<Limits> {
    Limits::new(Bounds {
        qps,
        burst,
        ..Bounds::default()
    })
}

/// Starts many tasks that wait for a permit of `class`; returns the times at which they got it.
fn crowd(limits: &Arc<Limits>, class: Class, size: usize) -> Arc<Mutex<Vec<Instant>>> {
    let served = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..size {
        let (limits, served) = (Arc::clone(limits), Arc::clone(&served));
        tokio::spawn(async move {
            limits.acquire(class, Arc::default).await;
            served.lock().push(Instant::now());
        });
    }
    served
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Limits whose bucket is empty.
async fn emptied(qps: f64) -> Arc<Limits> {
    let limits = limits(qps, 1);
    limits.acquire(Class::Write, Arc::default).await;
    limits
}

#[tokio::test(start_paused = true)]
async fn l1_a_release_never_waits_for_a_token() {
    let limits = emptied(1.0).await;
    let waiting = crowd(&limits, Class::Evidence, 10_000);
    seconds(1).await;
    let begun = Instant::now();
    for _ in 0..1000 {
        limits.acquire(Class::Release, Arc::default).await;
        limits.charge(Class::Release);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(waiting.lock().len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn other_traffic_goes_at_the_rate_after_the_burst() {
    let limits = limits(10.0, 5);
    let begun = Instant::now();
    for _ in 0..25 {
        limits.acquire(Class::Write, Arc::default).await;
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
async fn l1_the_unused_share_of_a_class_goes_to_the_others() {
    for class in [Class::Evidence, Class::Write, Class::Notice] {
        let limits = emptied(100.0).await;
        let served = crowd(&limits, class, 10_000);
        seconds(10).await;
        let served = served.lock().len();
        assert!((980..=1_001).contains(&served), "{class:?}: {served}");
    }
}

/// A class that did not wait has not saved up tokens: its share counts from its first waiting
/// request.
#[tokio::test(start_paused = true)]
async fn l1_an_idle_class_saves_up_no_tokens() {
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
async fn l1_the_timer_fires_only_when_a_request_is_served() {
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
async fn no_request_overtakes_a_waiting_one() {
    let limits = emptied(1.0).await;
    let waits = crowd(&limits, Class::Write, 1);
    tokio::task::yield_now().await;
    limits.bucket.lock().tokens = 1.0;
    assert!(waits.lock().is_empty() && !limits.may_begin());
    seconds(2).await;
    assert!(waits.lock().len() == 1 && limits.may_begin());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_takes_no_token() {
    let limits = emptied(10.0).await;
    let cancelled: Vec<_> = (0..1_000)
        .map(|_| {
            let limits = Arc::clone(&limits);
            tokio::spawn(async move { limits.acquire(Class::Evidence, Arc::default).await })
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

/// Requests of work that has begun are sent at once, and later requests wait for their tokens.
#[tokio::test(start_paused = true)]
async fn later_requests_wait_for_charged_tokens() {
    let limits = emptied(10.0).await;
    let begun = Instant::now();
    for _ in 0..9 {
        limits.charge(Class::Write);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    limits.acquire(Class::Write, Arc::default).await;
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(1_000)..Duration::from_millis(1_010)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rate_of_zero_means_no_limit() {
    let limits = limits(0.0, 1);
    let begun = Instant::now();
    for _ in 0..1_000 {
        limits.acquire(Class::Write, Arc::default).await;
        limits.charge(Class::Write);
    }
    assert!(limits.may_begin());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}
