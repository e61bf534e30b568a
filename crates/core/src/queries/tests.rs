mod renewed;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Display;

use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body;

use super::*;
use crate::executor::{Bounds, Class, Executor, Writes};
use crate::http::Request;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ask(&'static str);

impl Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Query for Ask {
    type Answer = u32;

    const NAME: &'static str = "ask";

    fn outcome(_: &u32) -> &'static str {
        "number"
    }

    /// The weight of an answer is its number.
    fn weight(answer: &u32) -> usize {
        *answer as usize
    }
}

/// The answers in order; an `Err` contains the delay that the server asks for.
type Answers = VecDeque<Result<u32, Option<Duration>>>;

/// Answers each query in order, each after a second; a query without a scripted answer gets 0.
#[derive(Default)]
struct Script {
    answers: Mutex<HashMap<Ask, Answers>>,
    reads: Mutex<Vec<Instant>>,
    /// The keys that a changed answer concerns.
    affected: Mutex<Vec<ObjectKey>>,
}

/// Queries with this prefix fail, each with a cause of its own.
const OWN_REASON: &str = "own reason ";

/// The first read of this query panics.
const PANICS: Ask = Ask("panics");

impl LiveReader<Ask> for Script {
    fn read<'a>(&'a self, query: &'a Ask) -> BoxFuture<'a, Result<u32, ReadError>> {
        Box::pin(async {
            self.reads.lock().push(Instant::now());
            assert!(*query != PANICS || self.reads.lock().len() > 1, "a bug");
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut answers = self.answers.lock();
            let answer = answers.get_mut(query).and_then(VecDeque::pop_front);
            answer.unwrap_or(Ok(0)).map_err(|retry_after| ReadError {
                message: query.0.strip_prefix(OWN_REASON).unwrap_or("no").into(),
                retry_after,
            })
        })
    }

    fn affected(&self, _: &Ask, old: Option<&u32>, new: &u32) -> Vec<ObjectKey> {
        if old == Some(new) {
            return Vec::new();
        }
        self.affected.lock().clone()
    }
}

impl Script {
    fn will_answer(
        &self,
        query: Ask,
        answers: impl IntoIterator<Item = Result<u32, Option<Duration>>>,
    ) {
        let answers = answers.into_iter().collect();
        self.answers.lock().insert(query, answers);
    }
}

struct World {
    cache: QueryCache<Ask>,
    script: Arc<Script>,
    woken: tokio::sync::mpsc::UnboundedReceiver<ObjectKey>,
    cancel: CancellationToken,
}

fn world(answers: impl IntoIterator<Item = Result<u32, Option<Duration>>>) -> World {
    world_within(answers, &Budget::default())
}

fn world_within(
    answers: impl IntoIterator<Item = Result<u32, Option<Duration>>>,
    budget: &Budget,
) -> World {
    let script = Arc::new(Script::default());
    script.will_answer(Q, answers);
    let (sender, woken) = tokio::sync::mpsc::unbounded_channel();
    let enqueue: Enqueue = Arc::new(move |key| {
        let _ = sender.send(key);
    });
    let cancel = CancellationToken::new();
    let (pace, reads, stop) = (Pace::default(), LiveReads::default(), cancel.clone());
    let cache = QueryCache::within(script.clone(), enqueue, pace, reads, stop, budget);
    World {
        cache,
        script,
        woken,
        cancel,
    }
}

fn key(name: &'static str) -> ObjectKey {
    ObjectKey::new("a", name)
}

/// A key and the time of its observation.
struct Observer {
    key: ObjectKey,
    observed: LogicalTime,
    after: Duration,
}

impl Observer {
    fn waiter(&self) -> Waiter<'_> {
        Waiter {
            key: &self.key,
            observed: self.observed,
            after: self.after,
        }
    }
}

/// A key that observes now.
fn observer(name: &'static str, after: Duration) -> Observer {
    Observer {
        key: key(name),
        observed: LogicalTime::now(),
        after,
    }
}

const Q: Ask = Ask("is it so");

#[tokio::test(start_paused = true)]
async fn one_read_serves_all_waiting_keys() {
    let mut world = world([Ok(7)]);
    for name in ["x", "y", "z"] {
        world.cache.ask(Q, observer(name, Duration::ZERO).waiter());
    }
    for name in ["x", "y", "z"] {
        assert_eq!(world.woken.recv().await, Some(key(name)));
    }
    assert_eq!(world.script.reads.lock().len(), 1);
    assert_eq!(world.cache.get(&Q).map(|live| *live.answer()), Some(7));
}

#[tokio::test(start_paused = true)]
async fn an_answer_newer_than_the_observation_needs_no_other_read() {
    let mut world = world([Ok(7)]);
    let early = observer("y", Duration::ZERO);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    // It observed no answer, and the answer arrived before it asked.
    world.cache.ask(Q, early.waiter());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert_eq!(world.script.reads.lock().len(), 1);
    // A key that observed the answer and asks again causes another read.
    world.cache.ask(Q, observer("y", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert_eq!(world.script.reads.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_outdated_answer_is_read_again() {
    let mut world = world([Ok(7)]);
    let early = observer("y", Duration::ZERO);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    world.cache.outdate(&Q);
    world.cache.ask(Q, early.waiter());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert_eq!(world.script.reads.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_the_time_at_which_its_read_began() {
    let mut world = world([Ok(7)]);
    let before = LogicalTime::now();
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let during = LogicalTime::now();
    // The read under way serves a key that asks meanwhile; the key can tell that it began too
    // early.
    world.cache.ask(Q, observer("y", Duration::ZERO).waiter());
    assert!(world.woken.recv().await.is_some() && world.woken.recv().await.is_some());
    let begun = world.cache.get(&Q).unwrap().begun();
    assert!(before < begun && begun < during);
    world.cache.ask(Q, observer("y", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert!(world.cache.get(&Q).unwrap().begun() > during);
    assert_eq!(world.script.reads.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_retried() {
    let mut world = world([Err(None), Err(Some(Duration::from_secs(60))), Ok(1)]);
    let begun = Instant::now();
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(world.cache.get(&Q).is_none());
    assert!(world.cache.last_error(&Q).is_some());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert!(
        begun.elapsed() >= Duration::from_secs(60),
        "Retry-After is honoured"
    );
    assert_eq!(world.script.reads.lock().len(), 3);
    assert!(world.cache.last_error(&Q).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_read_that_panics_is_retried() {
    let mut world = world([]);
    world
        .cache
        .ask(PANICS, observer("x", Duration::ZERO).waiter());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = world.cache.last_error(&PANICS).unwrap();
    assert!(error.message.contains("a bug"), "{}", error.message);
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert!(world.cache.get(&PANICS).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_does_not_renew_the_last_answer() {
    let mut world = world([Ok(1), Err(None), Ok(2)]);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    world.woken.recv().await.unwrap();
    let first = world.cache.get(&Q).unwrap().begun();
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    let failed = async {
        while world.cache.last_error(&Q).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let failed = tokio::time::timeout(Duration::from_secs(10), failed).await;
    assert!(failed.is_ok(), "no error was recorded");
    let live = world.cache.get(&Q).unwrap();
    assert_eq!((*live.answer(), live.begun()), (1, first));
    assert!(world.woken.try_recv().is_err(), "woken by an error");
    assert_eq!(world.woken.recv().await, Some(key("x")));
    let live = world.cache.get(&Q).unwrap();
    assert!(*live.answer() == 2 && live.begun() > first);
}

/// Fails this many times.
fn failures(times: usize) -> impl Iterator<Item = Result<u32, Option<Duration>>> {
    std::iter::repeat_n(Err(None), times)
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_and_their_end_are_logged_once() {
    let log = crate::logged::Log::kept();
    let mut world = world(failures(8).chain([Ok(7)]));
    world.cache.ask(Q, observer("a", Duration::ZERO).waiter());
    // Another query is answered all the time, which does not end the outage of this one.
    let other = Ask("is it otherwise");
    while world.cache.get(&Q).is_none() {
        world
            .cache
            .ask(other.clone(), observer("b", Duration::ZERO).waiter());
        world.woken.recv().await.unwrap();
    }
    assert_eq!(log.lines("live reads fail").len(), 1);
    let again = log.lines("succeed again");
    assert!(again.len() == 1 && again[0].contains(Q.0), "{again:#?}");
    assert_eq!(log.lines("WARN").len(), 1, "{:#?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn one_query_is_logged_per_cause() {
    let log = crate::logged::Log::kept();
    let mut world = world(failures(4));
    let other = Ask("is it otherwise");
    world.script.will_answer(other.clone(), failures(12));
    world.cache.ask(Q, observer("a", Duration::ZERO).waiter());
    world
        .cache
        .ask(other, observer("b", Duration::from_secs(1)).waiter());
    // Both have failed three times by now, and neither has been answered.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(log.lines("WARN").len(), 1, "{:#?}", log.lines(""));
    assert_eq!(world.woken.recv().await, Some(key("a")));
    // The query that was logged is answered. The other is not, and is logged instead.
    assert_eq!(world.woken.recv().await, Some(key("b")));
    assert_eq!(log.lines("live reads fail").len(), 2);
    assert_eq!(log.lines("succeed again").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_many_failing_queries_a_few_are_logged() {
    let log = crate::logged::Log::kept();
    let mut world = world([]);
    let queries: Vec<Ask> = (0..100)
        .map(|n| Ask(format!("{OWN_REASON}{n}").leak()))
        .collect();
    for query in &queries {
        world.script.will_answer(query.clone(), failures(5));
        world
            .cache
            .ask(query.clone(), observer(query.0, Duration::ZERO).waiter());
    }
    for _ in &queries {
        world.woken.recv().await.unwrap();
    }
    let logged = log.lines("live reads fail").len();
    assert!((1..20).contains(&logged), "{logged} of 100 were logged");
    assert_eq!(log.lines("succeed again").len(), logged);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_no_key_asks_again_is_dropped() {
    let log = crate::logged::Log::kept();
    let mut world = world(failures(1000));
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    // After ten minutes its key is woken. Its object still exists, so it asks again.
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert!(world.cache.get(&Q).is_none());
    let before = world.script.reads.lock().len();
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    let reads = world.script.reads.lock().clone();
    assert!(reads.len() > before + 10, "{} and {before}", reads.len());
    // When its key is woken again, its object is deleted.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let last = world.script.reads.lock().len();
    assert!(last <= reads.len() + 1, "{last} and {}", reads.len());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.script.reads.lock().len(), last);
    assert!(
        world.cache.last_error(&Q).is_none(),
        "the query was not dropped"
    );
    assert_eq!(log.lines("live reads fail").len(), 1);
    // A later key causes a new read.
    world.script.will_answer(Q, [Ok(7)]);
    world.cache.ask(Q, observer("y", Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key("y")));
}

#[tokio::test(start_paused = true)]
async fn a_read_can_be_delayed_and_moved_forward() {
    let mut world = world([Ok(1), Ok(2)]);
    let begun = Instant::now();
    world
        .cache
        .ask(Q, observer("x", Duration::from_secs(100)).waiter());
    world
        .cache
        .ask(Q, observer("y", Duration::from_secs(10)).waiter());
    world
        .cache
        .ask(Q, observer("z", Duration::from_secs(50)).waiter());
    assert!(world.woken.recv().await.is_some());
    assert_eq!(begun.elapsed(), Duration::from_secs(11));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(
        world.script.reads.lock().len(),
        1,
        "the earlier read serves the later keys"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_of_one_query_keep_their_interval() {
    let mut world = world([]);
    for _ in 0..3 {
        world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
        assert!(world.woken.recv().await.is_some());
    }
    let reads = world.script.reads.lock().clone();
    for pair in reads.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(1100));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outdated_read_is_repeated_even_while_under_way() {
    let mut world = world([Ok(1), Ok(2)]);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.cache.outdate(&Q);
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert_eq!(world.cache.get(&Q).map(|live| *live.answer()), Some(2));
    world.cache.outdate(&Q);
    assert_eq!(world.cache.get(&Q), None);
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_all_reads() {
    let mut world = world([]);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    world.cancel.cancel();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.woken.try_recv().is_err());
}

/// More queries than one namespace may have in flight; each keeps its slot for a second.
fn crowd(world: &World) -> Vec<Ask> {
    let crowd: Vec<Ask> = (0..100).map(|n| Ask(format!("crowd {n}").leak())).collect();
    for query in &crowd {
        let observer = observer(query.0, Duration::ZERO);
        world.cache.ask(query.clone(), observer.waiter());
    }
    crowd
}

#[tokio::test(start_paused = true)]
async fn l1_a_read_that_waits_for_its_turn_begins_after_it_was_asked_for() {
    let mut world = world([Ok(7)]);
    let crowd = crowd(&world);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = world.script.reads.lock().len();
    assert!(before < crowd.len(), "all of {before} read at once");
    // The waiting read serves a key that asks meanwhile, and begins late enough for it.
    let late = observer("y", Duration::ZERO);
    world.cache.ask(Q, late.waiter());
    for _ in 0..crowd.len() + 2 {
        world.woken.recv().await.unwrap();
    }
    let live = world.cache.get(&Q).unwrap();
    assert!(*live.answer() == 7 && live.begun() > late.observed);
    assert_eq!(world.script.reads.lock().len(), crowd.len() + 1);
}

#[tokio::test(start_paused = true)]
async fn l1_a_read_that_waits_for_a_retry_holds_no_slot() {
    let mut world = world([Ok(7)]);
    for query in crowd(&world) {
        let no = std::iter::repeat_n(Err(Some(Duration::from_secs(60))), 9);
        world.script.will_answer(query, no);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.script.reads.lock().len(), 100);
    world.cache.ask(Q, observer("x", Duration::ZERO).waiter());
    let answered = tokio::time::timeout(Duration::from_secs(2), world.woken.recv()).await;
    assert_eq!(answered, Ok(Some(key("x"))));
}

/// Asks a query of this name and waits for the answer, which weighs 1000.
async fn answered(world: &mut World, name: &'static str) {
    world.script.will_answer(Ask(name), [Ok(1000)]);
    world
        .cache
        .ask(Ask(name), observer(name, Duration::ZERO).waiter());
    assert_eq!(world.woken.recv().await, Some(key(name)));
    assert!(world.cache.get(&Ask(name)).is_some(), "dropped at once");
}

#[tokio::test(start_paused = true)]
async fn t3_unused_answers_are_dropped_after_a_while() {
    let budget = Budget::default();
    let mut world = world_within([], &budget);
    answered(&mut world, "a").await;
    assert!(budget.used() > 1000);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(world.cache.get(&Ask("a")).is_some());
    // No key asks any more.
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(budget.used(), 0);
    assert!(world.cache.get(&Ask("a")).is_none());
    // The periodic sweep starts again with the next query.
    answered(&mut world, "a").await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn t3_beyond_the_budget_the_longest_unused_answers_are_dropped_first() {
    let budget = Budget::new(4000);
    let (mut one, mut other) = (world_within([], &budget), world_within([], &budget));
    for name in ["a", "b"] {
        answered(&mut one, name).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert!(one.cache.get(&Ask("a")).is_some(), "within the budget");
    tokio::time::sleep(Duration::from_secs(20)).await;
    for name in ["c", "d", "e", "f"] {
        answered(&mut other, name).await;
    }
    // The answers of all caches count.
    assert!(one.cache.get(&Ask("b")).is_none());
    assert!(budget.used() <= 4000 + 3000, "{}", budget.used());
    for name in ["g", "h", "i", "j"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        answered(&mut other, name).await;
        assert!(budget.used() <= 5500, "{}", budget.used());
    }
    drop((one.cache, other.cache));
    one.cancel.cancel();
    other.cancel.cancel();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(budget.used(), 0, "dropped caches still count");
}

#[tokio::test(start_paused = true)]
async fn t3_an_outdated_or_replaced_answer_is_not_counted() {
    let budget = Budget::default();
    let mut world = world_within([], &budget);
    answered(&mut world, "a").await;
    let one = budget.used();
    answered(&mut world, "a").await;
    assert_eq!(budget.used(), one);
    world.cache.outdate(&Ask("a"));
    assert_eq!(budget.used(), 0);
}

/// Reads through an executor, as in production.
struct Reads(Arc<Executor>);

impl LiveReader<Ask> for Reads {
    fn read<'a>(&'a self, _: &'a Ask) -> BoxFuture<'a, Result<u32, ReadError>> {
        Box::pin(async {
            let request = Request::get("/api/v1/nodes/n1");
            let answer = self.0.read(&request, Class::Evidence).await;
            answer.map(|_| 0).map_err(ReadError::from)
        })
    }
}

/// A namespace whose reads wait for tokens does not delay the read of another namespace.
#[tokio::test(start_paused = true)]
async fn l1_live_reads_that_wait_for_tokens_take_turns_by_namespace() {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let bounds = Bounds {
        qps: 5.0,
        burst: 5,
        ..Bounds::default()
    };
    let client = Client::new(service, "default");
    let executor = Executor::new(client, "manager", bounds, Writes::Sent);
    let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
    let enqueue: Enqueue = Arc::new(move |key: ObjectKey| {
        let _ = sender.send(key);
    });
    let (pace, reads, stop) = (
        Pace::default(),
        LiveReads::default(),
        CancellationToken::new(),
    );
    let cache = QueryCache::new(
        Arc::new(Reads(Arc::new(executor))),
        enqueue,
        pace,
        reads,
        stop,
    );
    let ask = |namespace: &str, name: &'static str| {
        let observer = Observer {
            key: ObjectKey::new(namespace, name),
            observed: LogicalTime::now(),
            after: Duration::ZERO,
        };
        cache.ask(Ask(name), observer.waiter());
    };
    for n in 0..750 {
        ask("busy", n.to_string().leak());
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let begun = Instant::now();
    ask("quiet", "quiet");
    while woken.recv().await.unwrap().namespace() != Some("quiet") {}
    let waited = begun.elapsed();
    assert!(waited <= Duration::from_secs(1), "{waited:?}");
}

/// A delay that no clock can add is never over.
#[tokio::test(start_paused = true)]
async fn the_longest_delays_are_never_over() {
    let World { script, .. } = world([]);
    let pace = Pace {
        min_interval: Duration::MAX,
        keep: Duration::MAX,
        ..Pace::default()
    };
    let enqueue: Enqueue = Arc::new(|_| {});
    let (reads, stop) = (LiveReads::default(), CancellationToken::new());
    let cache = QueryCache::new(script.clone(), enqueue, pace, reads, stop);
    let key = ObjectKey::new("a", "b");
    let later = Waiter {
        after: Duration::MAX,
        ..Waiter::now(&key)
    };
    cache.ask(Q, later);
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert!(script.reads.lock().is_empty());
    // An earlier one replaces it; the next one waits for the interval.
    for _ in 0..2 {
        cache.ask(Q, Waiter::now(&key));
        tokio::time::sleep(Duration::from_secs(86_400)).await;
    }
    assert_eq!(script.reads.lock().len(), 1);
}

/// A caller outside the runtime breaks nothing for those within.
#[test]
fn asking_outside_a_runtime_changes_nothing() {
    let World { cache, script, .. } = world([]);
    let key = ObjectKey::new("a", "b");
    let ask = || cache.ask(Q, Waiter::now(&key));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(ask)).is_err());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        ask();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(script.reads.lock().len(), 1);
    });
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| cache.renew(&Q, &"a".into()))).is_err());
    runtime.block_on(async {
        cache.renew(&Q, &"a".into());
        tokio::time::sleep(Duration::from_secs(2)).await;
    });
    assert_eq!(script.reads.lock().len(), 2);
}
