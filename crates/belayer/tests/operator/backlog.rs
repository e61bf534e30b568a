//! Rule L1: thousands of pending live reads delay neither releases, nor holds, nor other live reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belayer::operator::{Components, Operator, Options};
use belayer_core::client;
use belayer_core::executor::{Bounds, Writes};
use belayer_holds::names::{POD_STATUS_HOLD, PVC_PROTECTION_HOLD};
use belayer_pod_finalizer::profile::config::Settings;
use belayer_sandbox::{Gvr, ListOptions, Subresource, Verb};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::world::{BELAYER, NAMESPACE, World, has_hold, let_pass, options, pod, within};

/// Pods whose owners do not exist, each of which needs a live read of its own.
const QUESTIONS: usize = 2_000;

/// The number in a manual run.
const MANY_QUESTIONS: usize = 10_000;

/// Live reads in flight at once in a process.
const IN_FLIGHT: f64 = 64.0;

/// Least shares of the token bucket, by rule L1.
const EVIDENCE: f64 = 0.5;
const WRITE: f64 = 0.2;

/// A class with a share of 20 % gets a token after at most five requests. The measured share of a class may be
/// off by this number of requests.
const TURN: f64 = 5.0;

/// Starts Belayer with these limits.
fn run(world: &World, settings: Settings, bounds: Bounds) -> CancellationToken {
    let components = Components::default().with(settings);
    let client = client::in_process(
        world.sandbox.service(BELAYER),
        belayer_holds::names::USER_AGENT,
    );
    let options = Options {
        writes: Writes::Sent,
        bounds,
        ..options(client)
    };
    let operator = Operator::new(options, components);
    let stop = CancellationToken::new();
    tokio::spawn(operator.run(stop.clone()));
    stop
}

/// A pod that has ended, of a workflow that does not exist. A pod that the garbage collector deleted before its
/// end would be released without a live read.
fn orphan(world: &World, namespace: &str, name: &str) {
    let mut object = pod(name, name, &format!("gone-{name}"));
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["finalizers"] = json!([POD_STATUS_HOLD]);
    world.create(&Gvr::PODS, Some(namespace), object);
    let end = json!({ "status": { "phase": "Succeeded" } });
    world.patch_in(&Gvr::PODS, Some(namespace), name, end, Subresource::Status);
}

/// Requests of Belayer so far, by purpose. The caches only watch here: only the gate is read by lists.
#[derive(Debug, Clone, Copy)]
struct Requests {
    evidence: usize,
    holds: usize,
    /// Events and any other write. Patches of pods that are not holds are releases, which need no token.
    others: usize,
}

fn requests(world: &World, new: usize) -> Requests {
    let holds = (0..new)
        .filter(|n| world.is_held(&format!("new-{n}")))
        .count();
    let (mut evidence, mut others) = (0, 0);
    for ((verb, resource), n) in world.sandbox.recorder().requests_by(BELAYER) {
        match verb {
            Verb::Get | Verb::List => evidence += usize::try_from(n).unwrap(),
            Verb::Watch => {}
            Verb::Patch if resource == "pods" => {}
            _ => others += usize::try_from(n).unwrap(),
        }
    }
    Requests {
        evidence,
        holds,
        others,
    }
}

#[tokio::test(start_paused = true)]
async fn l1_a10_a_backlog_of_live_reads_delays_no_other_request() {
    check_backlog(QUESTIONS).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: the same with five times the queries"]
async fn l1_a10_a_backlog_of_ten_thousand_live_reads_delays_no_other_request() {
    check_backlog(MANY_QUESTIONS).await;
}

async fn check_backlog(queries: usize) {
    let bounds = Bounds::default();
    let (qps, burst) = (bounds.qps, f64::from(bounds.burst));
    let settings = Settings {
        // The test measures a backlog of this size.
        backlog_threshold: usize::MAX,
        ..Settings::default()
    };
    // A worker's step sends one hold. Its token is returned when the step begins, and the hold is charged when it is
    // sent: this many may be in flight.
    let debt = settings.workers as f64;
    // Even if live reads got the whole bucket, some would remain after two seconds.
    let seconds = ((queries as f64 - burst) / qps) as usize - 3;
    // And some holds would remain if holds got all tokens that live reads may not have.
    let new = queries / 2;

    let world = World::new();
    world.create_namespace("quiet");
    for n in 0..queries {
        orphan(&world, NAMESPACE, &format!("orphan-{n}"));
    }
    let uid = world.workflow("build");
    for n in 0..seconds {
        world.held_pod(&format!("done-{n}"), "build", &uid);
    }
    let _stop = run(&world, settings, bounds).drop_guard();
    let_pass(Duration::from_secs(1)).await;
    for n in 0..new {
        world.pod(&format!("new-{n}"), "build", &uid);
    }
    let_pass(Duration::from_secs(1)).await;

    let before = requests(&world, new);
    let begun = Instant::now();
    for n in 0..seconds {
        let name = format!("done-{n}");
        world.consume(&name);
        within(Duration::from_millis(100), "a release", || {
            !world.is_held(&name)
        })
        .await;
        if n == 5 {
            orphan(&world, "quiet", "alone");
            // At worst after all requests in flight, at the rate of live reads.
            let limit = Duration::from_secs_f64((IN_FLIGHT + TURN) / (EVIDENCE * qps));
            within(limit, "one live read beside all of others", || {
                !holds(&world, "quiet", "alone")
            })
            .await;
        }
        tokio::time::sleep_until(begun + Duration::from_secs(n as u64 + 1)).await;
    }
    let passed = begun.elapsed().as_secs_f64();
    let after = requests(&world, new);
    assert!(
        after.evidence < queries && after.holds < new,
        "some class must wait all the time: {after:?}"
    );
    let evidence = (after.evidence - before.evidence) as f64;
    let writes = (after.holds - before.holds) as f64;
    let all = evidence + writes + (after.others - before.others) as f64;
    let figures = format!("{before:?} {after:?} in {passed} s");
    // Less than one token at the beginning, and less than one at the end.
    assert!(all >= qps * passed - 1.0, "{figures}");
    assert!(all <= qps * passed + 1.0 + debt, "{figures}");
    assert!(evidence >= EVIDENCE * all - TURN, "{figures}");
    assert!(writes >= WRITE * all - TURN, "{figures}");
}

fn holds(world: &World, namespace: &str, name: &str) -> bool {
    let pod = world.cluster().get(&Gvr::PODS, Some(namespace), name);
    pod.is_ok_and(|pod| has_hold(&pod))
}

/// The only worker has a key that needs a token, and there is none for a minute.
#[tokio::test(start_paused = true)]
async fn l1_a_key_without_a_token_frees_its_worker() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("done", "build", &uid);
    let settings = Settings {
        workers: 1,
        ..Settings::default()
    };
    let bounds = Bounds {
        qps: 1.0 / 60.0,
        burst: 1,
        ..Bounds::default()
    };
    let stop = run(&world, settings, bounds);
    let_pass(Duration::from_secs(1)).await;
    for n in 0..10 {
        world.pod(&format!("new-{n}"), "build", &uid);
    }
    let_pass(Duration::from_secs(1)).await;
    let held = || {
        (0..10)
            .filter(|n| world.is_held(&format!("new-{n}")))
            .count()
    };
    assert!(held() <= 1);
    world.consume("done");
    within(Duration::from_millis(100), "the release", || {
        !world.is_held("done")
    })
    .await;
    // The waiting reads get their tokens and lose nothing: one per minute, and other requests get their
    // share.
    let_pass(Duration::from_secs(3600)).await;
    assert_eq!(held(), 10);
    stop.cancel();
}

/// Live reads under way, and the most there were.
#[derive(Debug, Default)]
struct Reads {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

/// The server as Belayer reaches it, if each live read takes a second.
fn slow_reads(world: &World, reads: &Arc<Reads>) -> kube::Client {
    let (service, reads) = (world.service(), Arc::clone(reads));
    client::in_process(
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (service, reads) = (service.clone(), Arc::clone(&reads));
            async move {
                let path = request.uri().path();
                // Of owners, and of the pods of a namespace.
                let is_live = path.contains("/namespaces/")
                    && (path.contains("/workflows") || path.ends_with("/pods"));
                if request.method() == http::Method::GET && is_live {
                    reads.all.fetch_add(1, Ordering::SeqCst);
                    let now = reads.now.fetch_add(1, Ordering::SeqCst) + 1;
                    reads.most.fetch_max(now, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    reads.now.fetch_sub(1, Ordering::SeqCst);
                }
                service.oneshot(request).await
            }
        }),
        belayer_holds::names::USER_AGENT,
    )
}

/// All live reads of all controllers share 64 places, however many tokens there are.
#[tokio::test(start_paused = true)]
async fn l1_at_most_64_live_reads_are_in_flight() {
    const EACH: usize = 150;
    let world = World::new();
    for n in 0..EACH {
        orphan(&world, NAMESPACE, &format!("orphan-{n}"));
        let namespace = format!("ns-{n}");
        world.create_namespace(&namespace);
        let pvc = json!({
            "metadata": { "name": "data", "finalizers": [PVC_PROTECTION_HOLD] },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        world.create(&Gvr::PERSISTENTVOLUMECLAIMS, Some(&namespace), pvc);
        world.delete(&Gvr::PERSISTENTVOLUMECLAIMS, Some(&namespace), "data");
    }
    let reads = Arc::default();
    let components =
        Components::default()
            .with(Settings::default())
            .with(belayer_pvc_protection::Settings {
                mode: belayer_pvc_protection::Mode::Own,
                ..Default::default()
            });
    let operator = Operator::new(options(slow_reads(&world, &reads)), components);
    let stop = CancellationToken::new();
    tokio::spawn(operator.run(stop.clone()));
    within(Duration::from_secs(60), "all are released", || {
        let held = world.held_pods() > 0;
        let pvcs =
            world
                .cluster()
                .list(&Gvr::PERSISTENTVOLUMECLAIMS, None, &ListOptions::default());
        !held && pvcs.unwrap().items.is_empty()
    })
    .await;
    assert!(reads.all.load(Ordering::SeqCst) >= 2 * EACH);
    assert_eq!(reads.most.load(Ordering::SeqCst), IN_FLIGHT as usize);
    stop.cancel();
}
