//! Measures the sandbox's capacity and event rate: `cargo bench -p belayer-sandbox`.
//!
//! One thread, in-process, no sockets. Options: `--objects N`, `--events N`. To compare changes, use CPU times
//! and bytes: wall time depends on the load of the machine.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark"
)]

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use belayer_sandbox::{
    Actor, DeleteOptions, Gvr, ListOptions, Patch, Recording, Sandbox, Subresource, WriteOptions,
};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const NAMESPACE: &str = "default";

/// CPU time of this thread, which does all the work.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Resident memory, in bytes.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

struct Table(String);

impl Table {
    fn new() -> Self {
        let mut table = Table(String::new());
        table.row(["", "number", "per CPU second", "wall", "bytes each"]);
        table
    }

    fn row<S: AsRef<str>>(&mut self, cells: [S; 5]) {
        let [what, number, rate, wall, bytes] = cells.each_ref().map(AsRef::as_ref);
        let _ = writeln!(
            self.0,
            "{what:<44}{number:>12}{rate:>16}{wall:>10}{bytes:>12}"
        );
    }

    fn timed(&mut self, what: &str, number: usize, work: impl FnOnce()) -> Duration {
        self.measured(what, number, None, work)
    }

    fn measured(
        &mut self,
        what: &str,
        number: usize,
        bytes: Option<u64>,
        work: impl FnOnce(),
    ) -> Duration {
        let (began, before) = (Instant::now(), cpu());
        work();
        let (took, wall) = (cpu() - before, began.elapsed());
        self.add(what, number, took, wall, bytes);
        took
    }

    fn add(
        &mut self,
        what: &str,
        number: usize,
        took: Duration,
        wall: Duration,
        bytes: Option<u64>,
    ) {
        let rate = number as f64 / took.as_secs_f64().max(1e-9);
        self.row([
            what.to_owned(),
            number.to_string(),
            format!("{rate:.0}"),
            format!("{:.2} s", wall.as_secs_f64()),
            bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        ]);
    }
}

fn small(index: usize) -> Value {
    json!({"metadata": {"name": format!("c-{index:07}"), "labels": {"app": "web"}}, "data": {"value": "1"}})
}

/// An object of about the size of a workflow engine's pod.
fn pod(index: usize) -> Value {
    let env: Vec<Value> = (0..20)
        .map(|i| json!({"name": format!("E{i}"), "value": "some value"}))
        .collect();
    json!({
        "metadata": {"name": format!("p-{index:07}"), "finalizers": ["example.dev/hold"], "labels": {"app": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "busybox", "env": env}]},
    })
}

fn sandbox() -> Sandbox {
    Sandbox::builder()
        .seed(1)
        .recording(Recording::Counts)
        .build()
}

fn create(sandbox: &Sandbox, gvr: &Gvr, object: Value) {
    let (actor, options) = (Actor::new("bench"), WriteOptions::default());
    sandbox
        .cluster()
        .create(&actor, gvr, Some(NAMESPACE), object, &options)
        .unwrap();
}

/// The first start in a process also reads the tables of the built-in kinds.
fn starts(table: &mut Table) {
    table.timed("the first start", 1, || drop(sandbox()));
    table.timed("later starts", 1_000, || {
        for _ in 0..1_000 {
            drop(sandbox());
        }
    });
}

fn objects(table: &mut Table, number: usize) {
    let sandbox = sandbox();
    let before = resident();
    let (began, cpu_before) = (Instant::now(), cpu());
    for index in 0..number {
        create(&sandbox, &Gvr::CONFIGMAPS, small(index));
    }
    let (took, wall) = (cpu() - cpu_before, began.elapsed());
    sandbox.cluster().compact(u64::MAX);
    let each = resident().saturating_sub(before) / number.max(1) as u64;
    table.add("small objects created", number, took, wall, Some(each));
    table.timed("listed in pages of 500", number, || {
        let mut options = ListOptions {
            limit: 500,
            ..ListOptions::default()
        };
        let mut seen = 0;
        loop {
            let page = sandbox
                .cluster()
                .list(&Gvr::CONFIGMAPS, None, &options)
                .unwrap();
            seen += page.items.len();
            if page.continue_token.is_empty() {
                break;
            }
            options.continue_token = page.continue_token;
        }
        assert_eq!(seen, number);
    });
}

fn releases(table: &mut Table, number: usize) {
    let sandbox = sandbox();
    let actor = Actor::new("bench");
    table.timed("pods created", number, || {
        for index in 0..number {
            create(&sandbox, &Gvr::PODS, pod(index));
        }
    });
    let now = DeleteOptions {
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    let all = ListOptions::default();
    table.timed("pods marked as deleted", number, || {
        sandbox
            .cluster()
            .delete_collection(&actor, &Gvr::PODS, None, &now, &all)
            .unwrap();
    });
    let release = json!({"metadata": {"finalizers": []}});
    table.timed("pods released by one patch each", number, || {
        for index in 0..number {
            let name = format!("p-{index:07}");
            let (patch, options) = (Patch::Merge(release.clone()), WriteOptions::default());
            sandbox
                .cluster()
                .patch(
                    &actor,
                    &Gvr::PODS,
                    Some(NAMESPACE),
                    &name,
                    patch,
                    Subresource::None,
                    &options,
                )
                .unwrap();
        }
    });
    assert_eq!(sandbox.cluster().counts().get("pods"), Some(&0));
}

/// Sends events through the HTTP service, encoded for clients; the writer and all watches share one core.
fn fan_out(table: &mut Table, watchers: usize, events: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let sandbox = sandbox();
        create(&sandbox, &Gvr::CONFIGMAPS, small(0));
        let from = sandbox.cluster().version();
        let path = format!("/api/v1/configmaps?watch=1&resourceVersion={from}");
        let mut tasks = Vec::new();
        for _ in 0..watchers {
            let request = Request::get(&path).body(Full::<Bytes>::default()).unwrap();
            let answer = sandbox.service("bench").oneshot(request).await.unwrap();
            tasks.push(tokio::spawn(async move {
                let (mut body, mut seen) = (answer.into_body(), 0);
                while seen < events {
                    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
                    seen += frame.iter().filter(|byte| **byte == b'\n').count();
                }
            }));
        }
        let (began, before) = (Instant::now(), cpu());
        let actor = Actor::new("bench");
        for number in 0..events {
            let patch = Patch::Merge(json!({"data": {"value": number.to_string()}}));
            let options = WriteOptions::default();
            sandbox
                .cluster()
                .patch(
                    &actor,
                    &Gvr::CONFIGMAPS,
                    Some(NAMESPACE),
                    "c-0000000",
                    patch,
                    Subresource::None,
                    &options,
                )
                .unwrap();
            if number % 10 == 0 {
                tokio::task::yield_now().await;
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        let what = format!("events to {watchers} watchers, written and read");
        table.add(
            &what,
            watchers * events,
            cpu() - before,
            began.elapsed(),
            None,
        );
    });
}

fn option(name: &str, default: usize) -> usize {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name);
    arguments
        .next()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

fn main() {
    // Figures of a debug build are meaningless.
    let many = if cfg!(debug_assertions) {
        20_000
    } else {
        1_000_000
    };
    let number = option("--objects", many);
    let events = option("--events", many / 20);
    let mut table = Table::new();
    starts(&mut table);
    releases(&mut table, (number / 50).max(1));
    for watchers in [1, 10, 100] {
        fan_out(&mut table, watchers, (events / watchers).max(1));
    }
    objects(&mut table, number);
    print!("{}", table.0);
}
