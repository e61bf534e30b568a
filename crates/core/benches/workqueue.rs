//! Keys per second through the queue: added by 8 producers, taken and finished by 8 consumers, all
//! distinct, with priorities, ageing and metrics on.
//!
//! `cargo bench -p belayer-core --bench workqueue -- [Together|Backlog] [keys] [rounds]`; one line
//! per case with the best and the median round.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belayer_core::workqueue::{Ageing, Metering, Options, Priority, WorkQueue};
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tokio::task::JoinSet;

const PRODUCERS: usize = 8;
const CONSUMERS: usize = 8;

/// client-go's buckets, in seconds.
const BOUNDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// Buckets as in a Prometheus client, so that metrics cost what they cost in production.
#[derive(Default)]
struct Buckets {
    counts: [AtomicU64; 11],
}

impl HistogramFn for Buckets {
    fn record(&self, seconds: f64) {
        let bucket = BOUNDS.partition_point(|bound| seconds > *bound);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
    }
}

struct Registry;

impl Recorder for Registry {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Buckets::default()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    /// Producers and consumers start together.
    Together,
    /// All keys are added, then all are taken.
    Backlog,
}

fn keys(count: usize) -> Vec<Vec<String>> {
    let each = count.div_ceil(PRODUCERS);
    (0..PRODUCERS)
        .map(|producer| {
            let keys = (producer * each..count.min((producer + 1) * each)).map(key);
            keys.collect()
        })
        .collect()
}

fn key(number: usize) -> String {
    format!("namespace-{}/pod-{number}", number % 100)
}

fn priority(number: usize) -> Priority {
    Priority::ALL[number % 3]
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

/// CPU time of this process so far, if the system reports it: steadier than the wall clock on a
/// busy machine.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .into_iter()
        .flat_map(str::split_whitespace)
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Duration::from_millis(fields.iter().sum::<u64>() * 10)
}

async fn round(case: Case, metering: Metering, count: usize) -> Cost {
    let options = Options {
        ageing: Ageing::default(),
        metering,
    };
    let queue: WorkQueue<String> = WorkQueue::with_options("bench", options);
    let keys = keys(count);
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut producers = JoinSet::new();
    for keys in keys {
        let queue = queue.clone();
        producers.spawn(async move {
            for (number, key) in keys.into_iter().enumerate() {
                queue.add(key, priority(number));
                if number % 128 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    if case == Case::Backlog {
        while producers.join_next().await.is_some() {}
    }
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        let queue = queue.clone();
        consumers.spawn(async move {
            let mut taken = 0_usize;
            while let Some(item) = queue.next().await {
                black_box(item.key());
                item.succeeded();
                taken += 1;
            }
            taken
        });
    }
    while producers.join_next().await.is_some() {}
    queue.shutdown_with_drain().await;
    let mut taken = 0;
    while let Some(consumer) = consumers.join_next().await {
        taken += consumer.unwrap_or(0);
    }
    let cost = Cost {
        wall: start.elapsed(),
        cpu: cpu_time().saturating_sub(cpu),
    };
    assert_eq!(taken, count, "every key exactly once");
    cost
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| argument.starts_with(char::is_uppercase));
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok());
    let count: usize = numbers.next().unwrap_or(1_000_000);
    let rounds: usize = numbers.next().unwrap_or(5);
    if metrics::set_global_recorder(Registry).is_err() {
        eprintln!("another recorder is installed");
    }
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()
    else {
        eprintln!("no runtime");
        return;
    };
    for (case, metering) in [
        (Case::Together, Metering::On),
        (Case::Together, Metering::Off),
        (Case::Backlog, Metering::On),
    ] {
        if wanted
            .as_ref()
            .is_some_and(|wanted| *wanted != format!("{case:?}"))
        {
            continue;
        }
        let mut costs: Vec<_> = (0..rounds.max(1))
            .map(|_| runtime.block_on(round(case, metering, count)))
            .collect();
        costs.sort_by_key(|cost| cost.wall);
        let rate = |cost: &Cost| count as f64 / cost.wall.as_secs_f64() / 1e6;
        let cpu = costs.iter().map(|cost| cost.cpu).min().unwrap_or_default();
        println!(
            "{case:?}, metrics {metering:?}: {count} keys, best {:.2} M/s, median {:.2} M/s, at \
             least {:.0} ns of CPU per key",
            rate(&costs[0]),
            rate(&costs[costs.len() / 2]),
            cpu.as_nanos() as f64 / count as f64,
        );
    }
}
