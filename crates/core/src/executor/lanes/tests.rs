use std::convert::Infallible;

use kube::Client;
use kube::client::Body;
use tokio::time::sleep;

use super::super::{Bounds, Executor, Tickets, Writes};
use super::*;
use crate::http::{PatchKind, Request};
use crate::object::Resource;
use crate::workqueue::{Backoff, Outcome, Priority, WorkQueue, Workers};

const SECOND: Duration = Duration::from_secs(1);

/// Releases in flight by default.
const AT_ONCE: usize = 64;

/// A server that takes 10 ms for a request, and refuses those that it has no capacity for.
#[derive(Debug, Default)]
struct Server {
    /// The highest number of requests at once; none while it is zero.
    capacity: Mutex<usize>,
    at_once: Mutex<usize>,
    /// The paths of all requests, and when they arrived.
    requests: Mutex<Vec<(Instant, String)>>,
    code: u16,
    retry_after: Option<&'static str>,
}

impl Server {
    /// A server that answers 429 with a `Retry-After` of a second.
    fn new(capacity: usize) -> Arc<Self> {
        Self::refusing(capacity, 429, Some("1"))
    }

    fn refusing(capacity: usize, code: u16, retry_after: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self {
            capacity: Mutex::new(capacity),
            code,
            retry_after,
            ..Self::default()
        })
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request.uri().path()).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, path: &str) -> http::Response<Body> {
        self.requests.lock().push((Instant::now(), path.to_owned()));
        *self.at_once.lock() += 1;
        let refuses = *self.at_once.lock() > *self.capacity.lock();
        sleep(Duration::from_millis(10)).await;
        *self.at_once.lock() -= 1;
        let response = http::Response::builder();
        if !refuses {
            let object = r#"{"metadata":{"resourceVersion":"1"}}"#;
            return response
                .body(Body::from(object.as_bytes().to_vec()))
                .unwrap();
        }
        let response = response.status(self.code);
        let response = match self.retry_after {
            Some(asked) => response.header("retry-after", asked),
            None => response,
        };
        response.body(Body::empty()).unwrap()
    }

    fn executor(self: &Arc<Self>) -> Executor {
        Executor::new(self.client(), "manager", Bounds::default(), Writes::Sent)
    }

    fn arrived(&self) -> usize {
        self.requests.lock().len()
    }
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::new(format!("ns-{}", n % 5), format!("pod-{n}"))
}

async fn patch(executor: &Executor, kind: &Resource, class: Class) -> Result<(), RequestError> {
    let patched = executor.patch(kind, &key(0), b"{}", class).await;
    patched.map(drop)
}

/// Releases `count` pods as the runner does; returns how many were released.
fn releasing(executor: &Executor, count: usize) -> (Workers<ObjectKey>, Arc<Mutex<usize>>) {
    let queue = WorkQueue::new("pods");
    let tickets = Tickets::new(executor, queue.clone());
    let released = Arc::new(Mutex::new(0));
    let done = Arc::clone(&released);
    queue.add_all((0..count).map(key), Priority::Release);
    let workers = Workers::spawn(AT_ONCE, queue, move |key| {
        let (tickets, done) = (tickets.clone(), Arc::clone(&done));
        async move {
            let pods = Resource::pods();
            let mut work = tickets.begin(&key);
            if !work.may_release(&pods) {
                return Outcome::Waiting;
            }
            let executor = tickets.executor();
            match executor.patch(&pods, &key, b"{}", Class::Release).await {
                Ok(_) => {
                    *done.lock() += 1;
                    Outcome::Done
                }
                Err(error) => {
                    let floor = error.retry_after().unwrap_or_default();
                    Outcome::Retry(Backoff::ERROR.at_least(floor))
                }
            }
        }
    });
    (workers, released)
}

/// The most requests within a second.
fn most_in_a_second(server: &Server) -> usize {
    let requests = server.requests.lock();
    let within = |from: Instant| {
        let second = from..from + SECOND;
        requests
            .iter()
            .filter(|(at, _)| second.contains(at))
            .count()
    };
    let begins = requests.iter().step_by(20);
    begins.map(|(at, _)| within(*at)).max().unwrap_or(0)
}

/// The server refuses everything for a minute, then it does eight requests at once.
#[tokio::test(start_paused = true)]
async fn l2_a_storm_of_429_costs_at_most_three_requests_for_each_of_10_000_releases() {
    let server = Server::new(0);
    let (_workers, released) = releasing(&server.executor(), 10_000);
    sleep(60 * SECOND).await;
    assert_eq!(*released.lock(), 0);
    let during = server.arrived();
    // Halved from the default on, then one at a time.
    assert!((50..=190).contains(&during), "{during} in a minute");
    assert!(most_in_a_second(&server) <= AT_ONCE);
    *server.capacity.lock() = 8;
    let recovered = Instant::now();
    while *released.lock() < 10_000 {
        sleep(SECOND).await;
        assert!(recovered.elapsed() < 1_000 * SECOND, "{}", released.lock());
    }
    let all = server.arrived();
    assert!(all <= 3 * 10_000, "{all}");
    let refused = all - during - 10_000;
    assert!(refused <= 1_000, "{refused} refused after the storm");
}

/// All releases fail together, and none is lost or sent before its time.
#[tokio::test(start_paused = true)]
async fn l2_releases_go_on_after_the_pause() {
    let server = Server::new(0);
    let (_workers, released) = releasing(&server.executor(), 1_000);
    sleep(SECOND / 2).await;
    assert_eq!(server.arrived(), AT_ONCE);
    *server.capacity.lock() = 1_000;
    sleep(SECOND / 2).await;
    assert_eq!(server.arrived(), AT_ONCE, "the server asked for a second");
    sleep(3 * SECOND).await;
    assert_eq!(*released.lock(), 1_000);
    assert_eq!(server.arrived(), 1_000 + AT_ONCE);
}

#[rstest::rstest]
#[case::of_429(429)]
#[case::of_503(503)]
#[tokio::test(start_paused = true)]
async fn l2_retry_after_pauses_the_class_and_the_resource(#[case] code: u16) {
    let server = Server::refusing(0, code, Some("20"));
    let executor = server.executor();
    let (pods, pvcs) = (Resource::pods(), Resource::pvcs());
    let refused = patch(&executor, &pods, Class::Release).await.unwrap_err();
    assert_eq!(refused.api().map(|api| api.code), Some(code));
    *server.capacity.lock() = 1_000;
    sleep(5 * SECOND).await;

    // Answered here, with the remaining time.
    let local = patch(&executor, &pods, Class::Release).await.unwrap_err();
    assert_eq!(local.class(), ErrorClass::TooManyRequests);
    let remaining = local.retry_after().unwrap();
    assert!(
        (14 * SECOND..26 * SECOND).contains(&remaining),
        "{remaining:?}"
    );
    assert_eq!(server.arrived(), 1);
    let message = local.to_string();
    assert!(
        message.contains("pods") && message.contains(&code.to_string()),
        "{message}"
    );

    // Another resource, another class, and a resource of the same name in another group.
    patch(&executor, &pvcs, Class::Release).await.unwrap();
    patch(&executor, &pods, Class::Write).await.unwrap();
    let other = Resource::new("metrics.k8s.io", "v1", "PodMetrics", "pods");
    patch(&executor, &other, Class::Release).await.unwrap();
    assert_eq!(server.arrived(), 4);
    sleep(20 * SECOND).await;
    patch(&executor, &pods, Class::Release).await.unwrap();
}

/// Each class is paused, and a request that is not sent takes no token.
#[tokio::test(start_paused = true)]
async fn l2_a_paused_request_takes_no_token() {
    for class in [Class::Evidence, Class::Write, Class::Notice] {
        let server = Server::refusing(0, 429, Some("1"));
        let bounds = Bounds {
            qps: 1.0 / 3600.0,
            burst: 2,
            ..Bounds::default()
        };
        let executor = Executor::new(server.client(), "manager", bounds, Writes::Sent);
        let read = Request::patch("/api/v1/pods", PatchKind::Merge, "{}");
        for _ in 0..10 {
            let refused = executor.write(&read, class).await.unwrap_err();
            assert_eq!(refused.class(), ErrorClass::TooManyRequests);
        }
        assert_eq!(server.arrived(), 1);
        *server.capacity.lock() = 1;
        sleep(2 * SECOND).await;
        executor.write(&read, class).await.unwrap();
        assert_eq!(server.arrived(), 2);
    }
}

/// Without `Retry-After` nothing is paused, but fewer releases are in flight.
#[tokio::test(start_paused = true)]
async fn l2_an_error_without_retry_after_halves_the_releases_in_flight() {
    let server = Server::refusing(0, 503, None);
    let executor = Arc::new(server.executor());
    let release = |_| {
        let executor = Arc::clone(&executor);
        async move { patch(&executor, &Resource::pods(), Class::Release).await }
    };
    let all = futures::future::join_all((0..AT_ONCE).map(release)).await;
    assert!(all.iter().all(Result::is_err));
    sleep(SECOND).await;
    let begun = Instant::now();
    futures::future::join_all((0..AT_ONCE / 2).map(release)).await;
    assert_eq!(begun.elapsed(), Duration::from_millis(10));
    // A quarter is left, and after the first round of them half of that.
    sleep(SECOND).await;
    let begun = Instant::now();
    futures::future::join_all((0..AT_ONCE / 2).map(release)).await;
    assert_eq!(begun.elapsed(), Duration::from_millis(30));
}

/// A request that is cancelled, or whose process is not the leader, keeps no slot.
#[tokio::test(start_paused = true)]
async fn a_cancelled_release_frees_its_slot() {
    let server = Server::new(1_000);
    let bounds = Bounds {
        concurrent_releases: 1,
        ..Bounds::default()
    };
    let executor = Executor::new(server.client(), "manager", bounds, Writes::Sent);
    let executor = Arc::new(executor);
    for _ in 0..3 {
        let executor = Arc::clone(&executor);
        let cancelled: Vec<_> = (0..10)
            .map(|_| {
                let executor = Arc::clone(&executor);
                tokio::spawn(
                    async move { patch(&executor, &Resource::pods(), Class::Release).await },
                )
            })
            .collect();
        sleep(Duration::from_millis(5)).await;
        cancelled.iter().for_each(tokio::task::JoinHandle::abort);
    }
    let begun = Instant::now();
    patch(&executor, &Resource::pods(), Class::Release)
        .await
        .unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(10));
}

#[test]
fn kinds_that_a_tenant_invents_take_no_memory() {
    let lanes = Lanes::new(8);
    let busy = lanes.of(Class::Release, "", "pods");
    let _slot = busy.free_slot();
    for n in 0..10_000 {
        let _ = lanes.of(Class::Evidence, "example.com", &format!("kind-{n}"));
    }
    assert!(lanes.lanes.lock().len() <= MANY);
    let again = lanes.of(Class::Release, "", "pods");
    assert!(Arc::ptr_eq(&busy, &again));
}

/// The pause differs between replicas, and no server and no proxy makes it longer than a minute.
#[tokio::test(start_paused = true)]
async fn l2_pauses_are_spread_and_bounded() {
    let pause = |asked: &'static str| async move {
        let server = Server::refusing(0, 429, Some(asked));
        let executor = server.executor();
        let refused = patch(&executor, &Resource::pods(), Class::Release).await;
        assert!(refused.is_err());
        let lane = executor.lanes.of(Class::Release, "", "pods");
        let until = lane.state.lock().paused.unwrap().until;
        until - Instant::now()
    };
    let (one, other) = (pause("10").await, pause("10").await);
    assert!(one != other && one >= 10 * SECOND && other < 13 * SECOND);
    assert_eq!(pause("86400").await, LONGEST_PAUSE);
}
