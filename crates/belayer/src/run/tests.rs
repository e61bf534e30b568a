//! Reloaded limits take effect: requests are counted on the embedded API server with a paused
//! clock.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belayer_holds::names::POD_STATUS_HOLD;
use belayer_sandbox::{
    Actor, Answer, Fault, Gvr, ListOptions, Match, Patch, Sandbox, Subresource, Verb, WriteOptions,
};
use clap::Parser as _;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::*;
use crate::cli::{Cli, Command};
use crate::config::API_VERSION;
use crate::reload::WARM_WITHIN;
use crate::server::Holds as _;

const NAMESPACE: &str = "ci";

/// Concurrent requests.
#[derive(Default)]
struct Flights {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Flights {
    fn begin(self: Arc<Self>) -> Flight {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Flight(self)
    }
}

struct Flight(Arc<Flights>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// pod-finalizer on a cluster, with a configuration that can be reloaded.
struct Stage {
    sandbox: Sandbox,
    patches: Arc<Flights>,
    supervisor: Supervisor,
    stop: CancellationToken,
    pods: usize,
}

fn source(limits: &str) -> Source {
    source_with(limits, "controllers: [pod-finalizer]")
}

/// A source with other keys of the process.
fn source_with(limits: &str, process: &str) -> Source {
    const PROFILE: &str =
        "{name: a, selector: {matchLabels: {a: b}}, consumed: {labels: {done: 'yes'}}}";
    let text = format!(
        "apiVersion: {API_VERSION}\n{process}\nlimits: {{{limits}}}\n\
         podFinalizer: {{profiles: [{PROFILE}]}}\n"
    );
    Source::parse(Path::new("b.yaml"), text).unwrap_or_else(|error| panic!("{error}"))
}

fn resolve() -> Resolve {
    resolve_with(&[])
}

fn resolve_with(flags: &[&str]) -> Resolve {
    let always = ["belayer", "run", "--on-disable=keep"];
    let all = always.iter().chain(flags);
    let arguments = match Cli::try_parse_from(all).unwrap().command {
        Command::Run(arguments) => *arguments,
        other => panic!("{other:?}"),
    };
    Box::new(move |source| Settings::resolve(&arguments, source, &Sources::default()))
}

fn client(sandbox: &Sandbox, patches: &Arc<Flights>) -> Client {
    let (service, patches) = (sandbox.service("belayer"), Arc::clone(patches));
    client::in_process(
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (service, patches) = (service.clone(), Arc::clone(&patches));
            async move {
                let is_patch = request.method() == http::Method::PATCH
                    && request.uri().path().contains("/pods/");
                let _flight = is_patch.then(|| patches.begin());
                service.oneshot(request).await
            }
        }),
        belayer_holds::names::USER_AGENT,
    )
}

impl Stage {
    async fn begin(limits: &str) -> Self {
        let sandbox = Sandbox::builder().build();
        // While it is not served, Belayer asks for it again and again.
        sandbox.load_yaml(belayer_holds::gate::CRD).unwrap();
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        let (user, options) = (Actor::new("user"), WriteOptions::default());
        let cluster = sandbox.cluster();
        cluster
            .create(&user, &Gvr::NAMESPACES, None, namespace, &options)
            .unwrap();
        // Long enough that the allowed number of requests overlap.
        let patches = Match::verb(Verb::Patch).resource("pods");
        let second = Duration::from_secs(1);
        sandbox.faults().inject(Fault::on(patches).delay(second));
        let patches = Arc::default();
        let (source, resolve) = (source(limits), resolve());
        let settings = resolve(&source).unwrap_or_else(|error| panic!("{error}"));
        let mut supervisor = Supervisor {
            current: Arc::new(Current::new(None)),
            shown: watch::Sender::new(shown(&source, &settings).unwrap()),
            client: client(&sandbox, &patches),
            watches: client(&sandbox, &patches),
            leadership: Leadership::unlimited(),
            worker: None,
            source,
            resolve,
            watcher: None,
        };
        supervisor.begin(&settings);
        let mut stage = Self {
            sandbox,
            patches,
            supervisor,
            stop: CancellationToken::new(),
            pods: 0,
        };
        stage.hold(1).await;
        stage
    }

    /// Simulates a change of the file.
    async fn reload(&mut self, limits: &str) {
        self.apply(source(limits)).await;
        self.hold(1).await;
    }

    async fn apply(&mut self, source: Source) {
        let applied = self.supervisor.apply(source, &self.stop).await;
        let applied = applied.unwrap_or_else(|error| panic!("{error}"));
        assert!(applied.is_none());
    }

    fn create(&mut self, pods: usize) {
        for _ in 0..pods {
            self.pods += 1;
            create(&self.sandbox, &format!("p{}", self.pods));
        }
    }

    fn held(&self) -> Vec<String> {
        held(&self.sandbox)
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        until(what, || condition(self)).await;
    }

    /// Creates pods and waits until they are held.
    async fn hold(&mut self, pods: usize) {
        let before = self.held().len();
        self.create(pods);
        let all = before + pods;
        self.until("all are held", |stage| stage.held().len() == all)
            .await;
    }

    /// How many of many new pods are held within a time, with an unused request budget; all are held in the
    /// end.
    async fn held_within(&mut self, time: Duration) -> usize {
        const MANY: usize = 60;
        sleep(Duration::from_secs(300)).await;
        let before = self.held().len();
        self.create(MANY);
        sleep(time).await;
        let held = self.held().len() - before;
        self.until("all are held", |stage| stage.held().len() == before + MANY)
            .await;
        held
    }

    /// Number of concurrent releases, out of twenty.
    async fn releases_at_once(&mut self) -> usize {
        self.hold(20).await;
        self.patches.most.store(0, Ordering::SeqCst);
        let (user, options) = (Actor::new("user"), WriteOptions::default());
        for pod in self.held() {
            let done = json!({ "metadata": { "labels": { "done": "yes" } } });
            self.sandbox
                .cluster()
                .patch(
                    &user,
                    &Gvr::PODS,
                    Some(NAMESPACE),
                    &pod,
                    Patch::Merge(done),
                    Subresource::None,
                    &options,
                )
                .unwrap();
        }
        self.until("all are released", |stage| stage.held().is_empty())
            .await;
        self.patches.most.load(Ordering::SeqCst)
    }
}

fn create(sandbox: &Sandbox, name: &str) {
    let (user, options) = (Actor::new("user"), WriteOptions::default());
    let pod = json!({
        "metadata": { "name": name, "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    let cluster = sandbox.cluster();
    let created = cluster.create(&user, &Gvr::PODS, Some(NAMESPACE), pod, &options);
    created.unwrap();
}

fn held(sandbox: &Sandbox) -> Vec<String> {
    let cluster = sandbox.cluster();
    let pods = cluster.list(&Gvr::PODS, None, &ListOptions::default());
    let is_held = |pod: &&Arc<Value>| {
        let all = pod["metadata"]["finalizers"].as_array();
        all.is_some_and(|all| all.iter().any(|name| name == POD_STATUS_HOLD))
    };
    let pods = pods.unwrap().items;
    let held = pods.iter().filter(is_held);
    held.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waits = async {
        while !condition() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(600), waits).await;
    assert!(waited.is_ok(), "not within ten minutes: {what}");
}

#[rstest]
#[case::more(2, 7)]
#[case::fewer(7, 2)]
#[tokio::test(start_paused = true)]
async fn a_reload_changes_concurrent_releases(#[case] before: usize, #[case] after: usize) {
    let limits = |number| format!("qps: 10000, burst: 10000, concurrentReleases: {number}");
    let mut stage = Stage::begin(&limits(before)).await;
    assert_eq!(stage.releases_at_once().await, before);
    stage.reload(&limits(after)).await;
    assert_eq!(stage.releases_at_once().await, after);
}

/// Uncounted requests that use part of the budget.
const SHARE: usize = 4;

#[tokio::test(start_paused = true)]
async fn a_reload_changes_requests_per_second() {
    let ten = Duration::from_secs(10);
    let mut stage = Stage::begin("qps: 1, burst: 1").await;
    let slow = stage.held_within(ten).await;
    assert!((10 - SHARE..=11).contains(&slow), "{slow} in 10 s");
    stage.reload("qps: 3, burst: 1").await;
    let fast = stage.held_within(ten).await;
    assert!((30 - 2 * SHARE..=31).contains(&fast), "{fast} in 10 s");
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_burst() {
    // The second that a patch takes, and a margin.
    let moment = Duration::from_millis(1_500);
    let mut stage = Stage::begin("qps: 1, burst: 6").await;
    let few = stage.held_within(moment).await;
    assert!((6 - SHARE..=7).contains(&few), "{few} at once");
    stage.reload("qps: 1, burst: 30").await;
    let many = stage.held_within(moment).await;
    assert!((30 - SHARE..=31).contains(&many), "{many} at once");
}

/// The caches of the running controllers are whole, and those of the new ones cannot be.
#[tokio::test(start_paused = true)]
async fn the_running_controllers_go_on_while_new_ones_cannot_fill_their_caches() {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let good = |value: u8| {
        let series = format!("{} {value}", belayer_metrics::CONFIG_GOOD);
        exporter.render().lines().any(|line| line == series)
    };
    let mut stage = Stage::begin("qps: 10").await;
    assert!(good(1));
    let reads = Match::verbs([Verb::List, Verb::Watch]).resource("pods");
    let unavailable = Fault::on(reads).answer(Answer::service_unavailable());
    let outage = stage.sandbox.faults().inject(unavailable);
    let Stage {
        sandbox,
        supervisor,
        stop,
        ..
    } = &mut stage;
    let during = async {
        sleep(WARM_WITHIN * 3).await;
        assert!(outage.hits() > 0 && good(0));
        // The open watch of the running controllers works.
        create(sandbox, "late");
        until("it is held", || held(sandbox).len() == 2).await;
        outage.remove();
    };
    let (applied, ()) = tokio::join!(supervisor.apply(source("qps: 20"), stop), during);
    assert!(matches!(applied, Ok(None)));
    assert_eq!(stage.supervisor.source.config.limits.qps, Some(20));
    assert!(good(1));
    stage.hold(1).await;
}

/// A mistaken file can be taken back, whether or not the controllers of the mistaken one work.
#[tokio::test(start_paused = true)]
async fn a_newer_file_ends_a_reload_that_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.yaml");
    let mut stage = Stage::begin("qps: 10").await;
    let text = stage.supervisor.source.text().to_owned();
    std::fs::write(&path, &text).unwrap();
    let written = Source::parse(&path, text.clone()).unwrap();
    stage.supervisor.watcher = Some(Watcher::new(&written, &[]).unwrap());
    let reads = Match::verbs([Verb::List, Verb::Watch]).resource("pods");
    let unavailable = Fault::on(reads).answer(Answer::service_unavailable());
    let _outage = stage.sandbox.faults().inject(unavailable);
    let correct = async {
        sleep(Duration::from_secs(20)).await;
        std::fs::write(&path, text.replace("qps: 10", "qps: [")).unwrap();
    };
    let Stage {
        supervisor, stop, ..
    } = &mut stage;
    let (applied, ()) = tokio::join!(supervisor.apply(source("qps: 20"), stop), correct);
    assert!(matches!(applied, Ok(Some(Err(_)))));
    assert_eq!(stage.supervisor.source.config.limits.qps, Some(10));
    stage.hold(1).await;
}

#[tokio::test(start_paused = true)]
async fn reloads_are_counted_by_result() {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorded = metrics::set_default_local_recorder(&recorder);
    let mut stage = Stage::begin("qps: 10").await;
    stage.reload("qps: 10").await;
    stage.reload("qps: 20").await;
    let text = exporter.render();
    let name = belayer_metrics::CONFIG_RELOADS;
    for status in ["unchanged", "applied"] {
        let series = format!("{name}{{status=\"{status}\"}} 1");
        assert!(text.lines().any(|line| line == series), "{text}");
    }
}

#[rstest]
#[case::a_dry_run_does_not_start("controllers: [pod-finalizer]\ndryRun: true")]
#[case::controllers_are_not_switched_off("controllers: ['*', '-pod-finalizer']")]
#[tokio::test(start_paused = true)]
async fn a_key_that_needs_a_restart_is_not_applied_with_other_keys(#[case] process: &str) {
    let mut stage = Stage::begin("qps: 10").await;
    for qps in [20, 30] {
        let source = source_with(&format!("qps: {qps}"), process);
        stage.apply(source).await;
        // Still running, and still sending.
        stage.hold(1).await;
        let running = &stage.supervisor.source.config;
        assert_eq!(running.limits.qps, Some(qps), "{process}");
        assert_eq!(running.dry_run, None, "{process}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_does_not_end_a_dry_run() {
    let sandbox = {
        let mut stage = Stage::begin("qps: 10").await;
        let dry = source_with("qps: 10", "controllers: [pod-finalizer]\ndryRun: true");
        let settings = (stage.supervisor.resolve)(&dry).unwrap_or_else(|error| panic!("{error}"));
        if let Some(worker) = stage.supervisor.worker.take() {
            worker.finish().await;
        }
        stage.supervisor.source = dry;
        stage.supervisor.begin(&settings);
        stage.apply(source("qps: 20")).await;
        stage.create(1);
        sleep(Duration::from_secs(60)).await;
        stage
    };
    assert_eq!(sandbox.held().len(), 1, "a dry run holds nothing more");
}

/// Each set of controllers finds anew that a pod cannot be held.
#[tokio::test(start_paused = true)]
async fn a_reload_repeats_no_event() {
    let mut stage = Stage::begin("qps: 10").await;
    let patches = Match::verb(Verb::Patch).resource("pods");
    let denied = Fault::on(patches).answer(Answer::forbidden("policy"));
    stage.sandbox.faults().inject(denied);
    stage.create(1);
    let events = |stage: &Stage| {
        let cluster = stage.sandbox.cluster();
        let all = cluster.list(&Gvr::EVENTS, None, &ListOptions::default());
        let all = all.unwrap().items;
        let denied = all.iter().filter(|event| event["reason"] == "HoldDenied");
        denied.count()
    };
    stage
        .until("it is reported", |stage| events(stage) == 1)
        .await;
    for qps in [20, 30] {
        stage.apply(source(&format!("qps: {qps}"))).await;
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(events(&stage), 1);
}

/// They are the reason to enforce a profile, which is such a reload.
#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_observed_losses() {
    let mut stage = Stage::begin("qps: 10").await;
    let observing = |mode: &str| {
        let profile = format!(
            "{{name: a, mode: {mode}, selector: {{matchLabels: {{a: b}}}}, consumed: {{labels: {{done: 'yes'}}}}}}"
        );
        let text = format!(
            "apiVersion: {API_VERSION}\ncontrollers: [pod-finalizer]\npodFinalizer: {{profiles: [{profile}]}}\n"
        );
        Source::parse(Path::new("b.yaml"), text).unwrap_or_else(|error| panic!("{error}"))
    };
    stage.apply(observing("observe")).await;
    stage.create(1);
    sleep(Duration::from_secs(60)).await;
    let (user, name) = (Actor::new("user"), format!("p{}", stage.pods));
    let cluster = stage.sandbox.cluster();
    let options = belayer_sandbox::DeleteOptions::default();
    let deleted = cluster.delete(&user, &Gvr::PODS, Some(NAMESPACE), &name, &options);
    deleted.unwrap();
    sleep(Duration::from_secs(60)).await;
    let losses = |stage: &Stage| {
        let report = stage.supervisor.current.holds();
        let report = &report["pod-finalizer"];
        let latest = report["latestLosses"][0]["name"].clone();
        (report["observedLosses"].clone(), latest)
    };
    let counted = (json!(1), json!(name));
    assert_eq!(losses(&stage), counted);
    stage.apply(observing("enforce")).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(losses(&stage), counted);
}

/// The body of a page of the debug address.
async fn page(routes: &Router, host: &str, path: &str) -> (http::StatusCode, String) {
    let request = http::Request::get(path).header("host", host);
    let request = request.body(axum::body::Body::empty()).unwrap();
    let response = routes.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
    (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_debug_address_serves_the_status_page() {
    let mut stage = Stage::begin("concurrentReleases: 2").await;
    let (routes, reads) = stage
        .supervisor
        .debug_endpoint(([127, 0, 0, 1], 8081).into());
    tokio::spawn(reads);
    let (code, text) = page(&routes, "localhost:8081", "/").await;
    assert_eq!(
        (
            code.as_u16(),
            text.contains("<title>Belayer: status</title>")
        ),
        (200, true)
    );
    for path in ["/", "/status.json", "/debug/holds"] {
        let (code, _) = page(&routes, "belayer.example.com", path).await;
        assert_eq!(code.as_u16(), 403, "{path}");
    }
    let (_, text) = page(&routes, "localhost:8081", "/debug/holds").await;
    assert!(text.contains("pod-finalizer"), "{text}");
    let (_, text) = page(&routes, "127.0.0.1:8081", "/status.json").await;
    let read: Value = serde_json::from_str(&text).unwrap();
    let held = |read: &Value| read["status"]["components"][0]["held"].clone();
    assert_eq!(held(&read), json!(1), "{read}");
    // After a reload it shows the holds of the new configuration.
    let pvcs =
        "controllers: [pod-finalizer]\npvcProtection: {finalizer: belayer.dev/pvc-protection}";
    stage
        .apply(source_with("concurrentReleases: 2", pvcs))
        .await;
    let (_, text) = page(&routes, "127.0.0.1:8081", "/status.json").await;
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(held(&read), json!(1), "{read}");
}

/// The file alone would be refused: its renew deadline is longer than the default lease duration.
#[rstest]
#[case::runs(&[])]
#[case::dry_run(&["--dry-run"])]
fn the_status_page_shows_the_lease_that_a_flag_names(#[case] more: &[&str]) {
    let file = "leaderElection: {renewDeadline: 40s, resourceName: file}";
    let source = source_with("qps: 10", file);
    let flags = [
        "--leader-elect-lease-duration=60s",
        "--leader-elect-resource-name=flag",
    ];
    let settings = resolve_with(&[&flags, more].concat())(&source);
    let settings = settings.unwrap_or_else(|error| panic!("{error}"));
    let query = shown(&source, &settings).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(query.lease.as_deref(), Some("belayer-system/flag"));
    assert_eq!(settings.candidacy().is_some(), more.is_empty());
}
