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

    /// Numbers weigh what they say.
    fn weight(answer: &u32) -> usize {
        *answer as usize
    }
}

/// In order; an `Err` says how long the server asks to wait.
type Answers = VecDeque<Result<u32, Option<Duration>>>;

/// Answers each question in order, each after a second; what nothing is said of is 0.
#[derive(Default)]
struct Script {
    answers: Mutex<HashMap<Ask, Answers>>,
    looks: Mutex<Vec<Instant>>,
}

/// Questions that begin so fail each for a reason of its own.
const OWN_REASON: &str = "own reason ";

impl LiveReader<Ask> for Script {
    fn look<'a>(&'a self, question: &'a Ask) -> BoxFuture<'a, Result<u32, LookError>> {
        Box::pin(async {
            self.looks.lock().push(Instant::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut answers = self.answers.lock();
            let answer = answers.get_mut(question).and_then(VecDeque::pop_front);
            answer.unwrap_or(Ok(0)).map_err(|retry_after| LookError {
                message: question.0.strip_prefix(OWN_REASON).unwrap_or("no").into(),
                retry_after,
            })
        })
    }
}

impl Script {
    fn will_answer(
        &self,
        question: Ask,
        answers: impl IntoIterator<Item = Result<u32, Option<Duration>>>,
    ) {
        let answers = answers.into_iter().collect();
        self.answers.lock().insert(question, answers);
    }
}

struct World {
    facts: QueryCache<Ask>,
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
    let wake: Wake = Arc::new(move |key| {
        let _ = sender.send(key);
    });
    let cancel = CancellationToken::new();
    let (pace, reads, stop) = (Pace::default(), LiveReads::default(), cancel.clone());
    let facts = QueryCache::within(script.clone(), wake, pace, reads, stop, budget);
    World {
        facts,
        script,
        woken,
        cancel,
    }
}

fn key(name: &'static str) -> ObjectKey {
    ObjectKey::new("a", name)
}

/// One who has observed, and asks.
struct Asks {
    key: ObjectKey,
    observed: LogicalTime,
    after: Duration,
}

impl Asks {
    fn asker(&self) -> Waiter<'_> {
        Waiter {
            key: &self.key,
            observed: self.observed,
            after: self.after,
        }
    }
}

/// One who observes at this moment.
fn asks(name: &'static str, after: Duration) -> Asks {
    Asks {
        key: key(name),
        observed: LogicalTime::now(),
        after,
    }
}

const Q: Ask = Ask("is it so");

#[tokio::test(start_paused = true)]
async fn one_look_serves_all_who_wait() {
    let mut world = world([Ok(7)]);
    for name in ["x", "y", "z"] {
        world.facts.ask(Q, asks(name, Duration::ZERO).asker());
    }
    for name in ["x", "y", "z"] {
        assert_eq!(world.woken.recv().await, Some(key(name)));
    }
    assert_eq!(world.script.looks.lock().len(), 1);
    assert_eq!(world.facts.get(&Q).map(|fact| *fact.answer()), Some(7));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_since_the_asker_observed_costs_no_other_look() {
    let mut world = world([Ok(7)]);
    let early = asks("y", Duration::ZERO);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    // It saw no answer, decided to ask, and was overtaken by the answer.
    world.facts.ask(Q, early.asker());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert_eq!(world.script.looks.lock().len(), 1);
    // Whoever knows the answer and asks all the same gets another look.
    world.facts.ask(Q, asks("y", Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert_eq!(world.script.looks.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_outdated_is_no_news() {
    let mut world = world([Ok(7)]);
    let early = asks("y", Duration::ZERO);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    world.facts.outdate(&Q);
    world.facts.ask(Q, early.asker());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert_eq!(world.script.looks.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fact_knows_when_its_look_began() {
    let mut world = world([Ok(7)]);
    let before = LogicalTime::now();
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let during = LogicalTime::now();
    // Somebody who asks during the look is served by it, and can tell that it began too early.
    world.facts.ask(Q, asks("y", Duration::ZERO).asker());
    assert!(world.woken.recv().await.is_some() && world.woken.recv().await.is_some());
    let begun = world.facts.get(&Q).unwrap().begun();
    assert!(before < begun && begun < during);
    world.facts.ask(Q, asks("y", Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert!(world.facts.get(&Q).unwrap().begun() > during);
    assert_eq!(world.script.looks.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_is_no_answer_and_is_repeated() {
    let mut world = world([Err(None), Err(Some(Duration::from_secs(60))), Ok(1)]);
    let begun = Instant::now();
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(world.facts.get(&Q).is_none());
    assert!(world.facts.last_error(&Q).is_some());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert!(
        begun.elapsed() >= Duration::from_secs(60),
        "Retry-After is honoured"
    );
    assert_eq!(world.script.looks.lock().len(), 3);
    assert!(world.facts.last_error(&Q).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_makes_the_last_answer_no_newer() {
    let mut world = world([Ok(1), Err(None), Ok(2)]);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    world.woken.recv().await.unwrap();
    let first = world.facts.get(&Q).unwrap().begun();
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    let failed = async {
        while world.facts.last_error(&Q).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let failed = tokio::time::timeout(Duration::from_secs(10), failed).await;
    assert!(failed.is_ok(), "the failure was taken for an answer");
    let fact = world.facts.get(&Q).unwrap();
    assert_eq!((*fact.answer(), fact.begun()), (1, first));
    assert!(world.woken.try_recv().is_err(), "woken by an error");
    assert_eq!(world.woken.recv().await, Some(key("x")));
    let fact = world.facts.get(&Q).unwrap();
    assert!(*fact.answer() == 2 && fact.begun() > first);
}

/// Fails as often as a test needs it to.
fn failures(times: usize) -> impl Iterator<Item = Result<u32, Option<Duration>>> {
    std::iter::repeat_n(Err(None), times)
}

#[tokio::test(start_paused = true)]
async fn looks_that_fail_again_and_again_are_told_once_and_so_is_their_end() {
    let log = crate::logged::Log::kept();
    let mut world = world(failures(8).chain([Ok(7)]));
    world.facts.ask(Q, asks("a", Duration::ZERO).asker());
    // Another question is answered all the time, which says nothing about this one.
    let other = Ask("is it otherwise");
    while world.facts.get(&Q).is_none() {
        world
            .facts
            .ask(other.clone(), asks("b", Duration::ZERO).asker());
        world.woken.recv().await.unwrap();
    }
    assert_eq!(log.lines("live looks fail").len(), 1);
    let again = log.lines("answered again");
    assert!(again.len() == 1 && again[0].contains(Q.0), "{again:#?}");
    assert_eq!(log.lines("WARN").len(), 1, "{:#?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn looks_that_fail_for_one_reason_are_told_of_by_one_of_them() {
    let log = crate::logged::Log::kept();
    let mut world = world(failures(4));
    let other = Ask("is it otherwise");
    world.script.will_answer(other.clone(), failures(12));
    world.facts.ask(Q, asks("a", Duration::ZERO).asker());
    world
        .facts
        .ask(other, asks("b", Duration::from_secs(1)).asker());
    // Both have failed three times by now, and neither has been answered.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(log.lines("WARN").len(), 1, "{:#?}", log.lines(""));
    assert_eq!(world.woken.recv().await, Some(key("a")));
    // The one that was told of is answered. The other is not, and is told of in its place.
    assert_eq!(world.woken.recv().await, Some(key("b")));
    assert_eq!(log.lines("live looks fail").len(), 2);
    assert_eq!(log.lines("answered again").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_many_questions_that_fail_for_many_reasons_a_few_are_told_of() {
    let log = crate::logged::Log::kept();
    let mut world = world([]);
    let questions: Vec<Ask> = (0..100)
        .map(|n| Ask(format!("{OWN_REASON}{n}").leak()))
        .collect();
    for question in &questions {
        world.script.will_answer(question.clone(), failures(5));
        world
            .facts
            .ask(question.clone(), asks(question.0, Duration::ZERO).asker());
    }
    for _ in &questions {
        world.woken.recv().await.unwrap();
    }
    let told = log.lines("live looks fail").len();
    assert!((1..20).contains(&told), "{told} of 100 were told of");
    assert_eq!(log.lines("answered again").len(), told);
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_on_for_those_who_do_not_ask_again() {
    let log = crate::logged::Log::kept();
    let mut world = world(failures(1000));
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    // After ten minutes it is woken. Its object is there, so it asks again.
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert!(world.facts.get(&Q).is_none());
    let before = world.script.looks.lock().len();
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key("x")));
    let looks = world.script.looks.lock().clone();
    assert!(looks.len() > before + 10, "{} and {before}", looks.len());
    // The next time its object is gone.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let last = world.script.looks.lock().len();
    assert!(last <= looks.len() + 1, "{last} and {}", looks.len());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.script.looks.lock().len(), last);
    assert!(
        world.facts.last_error(&Q).is_none(),
        "it is remembered still"
    );
    assert_eq!(log.lines("live looks fail").len(), 1);
    // Who comes later asks anew.
    world.script.will_answer(Q, [Ok(7)]);
    world.facts.ask(Q, asks("y", Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key("y")));
}

#[tokio::test(start_paused = true)]
async fn a_look_can_be_put_off_and_pulled_forward() {
    let mut world = world([Ok(1), Ok(2)]);
    let begun = Instant::now();
    world
        .facts
        .ask(Q, asks("x", Duration::from_secs(100)).asker());
    world
        .facts
        .ask(Q, asks("y", Duration::from_secs(10)).asker());
    world
        .facts
        .ask(Q, asks("z", Duration::from_secs(50)).asker());
    assert!(world.woken.recv().await.is_some());
    assert_eq!(begun.elapsed(), Duration::from_secs(11));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(
        world.script.looks.lock().len(),
        1,
        "the later ones were served by the earlier one"
    );
}

#[tokio::test(start_paused = true)]
async fn looks_at_one_question_keep_their_distance() {
    let mut world = world([]);
    for _ in 0..3 {
        world.facts.ask(Q, asks("x", Duration::ZERO).asker());
        assert!(world.woken.recv().await.is_some());
    }
    let looks = world.script.looks.lock().clone();
    for pair in looks.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(1100));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outdated_look_is_repeated_even_if_it_is_under_way() {
    let mut world = world([Ok(1), Ok(2)]);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.facts.outdate(&Q);
    assert_eq!(world.woken.recv().await, Some(key("x")));
    assert_eq!(world.facts.get(&Q).map(|fact| *fact.answer()), Some(2));
    world.facts.outdate(&Q);
    assert_eq!(world.facts.get(&Q), None);
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_all_looks() {
    let mut world = world([]);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    world.cancel.cancel();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.woken.try_recv().is_err());
}

/// More questions than one namespace may have in flight, each of which keeps its slot for a second.
fn crowd(world: &World) -> Vec<Ask> {
    let crowd: Vec<Ask> = (0..100).map(|n| Ask(format!("crowd {n}").leak())).collect();
    for question in &crowd {
        let asks = asks(question.0, Duration::ZERO);
        world.facts.ask(question.clone(), asks.asker());
    }
    crowd
}

#[tokio::test(start_paused = true)]
async fn l1_a_look_that_waits_for_its_turn_begins_after_it_was_asked_for() {
    let mut world = world([Ok(7)]);
    let crowd = crowd(&world);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = world.script.looks.lock().len();
    assert!(before < crowd.len(), "all of {before} looked at once");
    // Whoever asks while it waits is served by it, and it began late enough for this one, too.
    let late = asks("y", Duration::ZERO);
    world.facts.ask(Q, late.asker());
    for _ in 0..crowd.len() + 2 {
        world.woken.recv().await.unwrap();
    }
    let fact = world.facts.get(&Q).unwrap();
    assert!(*fact.answer() == 7 && fact.begun() > late.observed);
    assert_eq!(world.script.looks.lock().len(), crowd.len() + 1);
}

#[tokio::test(start_paused = true)]
async fn l1_a_look_that_will_be_repeated_gives_way_to_others() {
    let mut world = world([Ok(7)]);
    for question in crowd(&world) {
        let no = std::iter::repeat_n(Err(Some(Duration::from_secs(60))), 9);
        world.script.will_answer(question, no);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.script.looks.lock().len(), 100);
    world.facts.ask(Q, asks("x", Duration::ZERO).asker());
    let answered = tokio::time::timeout(Duration::from_secs(2), world.woken.recv()).await;
    assert_eq!(answered, Ok(Some(key("x"))));
}

/// Asks something of this name and waits for the answer, which weighs 1000.
async fn answered(world: &mut World, name: &'static str) {
    world.script.will_answer(Ask(name), [Ok(1000)]);
    world
        .facts
        .ask(Ask(name), asks(name, Duration::ZERO).asker());
    assert_eq!(world.woken.recv().await, Some(key(name)));
    assert!(world.facts.get(&Ask(name)).is_some(), "forgotten at once");
}

#[tokio::test(start_paused = true)]
async fn t3_answers_that_nobody_asks_for_are_forgotten_by_time() {
    let budget = Budget::default();
    let mut world = world_within([], &budget);
    answered(&mut world, "a").await;
    assert!(budget.used() > 1000);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(world.facts.get(&Ask("a")).is_some());
    // Nobody asks anything any more.
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(budget.used(), 0);
    assert!(world.facts.get(&Ask("a")).is_none());
    // Who asks again is swept again.
    answered(&mut world, "a").await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn t3_beyond_the_budget_the_answers_asked_for_longest_ago_go_first() {
    let budget = Budget::new(4000);
    let (mut one, mut other) = (world_within([], &budget), world_within([], &budget));
    for name in ["a", "b"] {
        answered(&mut one, name).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert!(one.facts.get(&Ask("a")).is_some(), "within the budget");
    tokio::time::sleep(Duration::from_secs(20)).await;
    for name in ["c", "d", "e", "f"] {
        answered(&mut other, name).await;
    }
    // Of whatever kind they are.
    assert!(one.facts.get(&Ask("b")).is_none());
    assert!(budget.used() <= 4000 + 3000, "{}", budget.used());
    for name in ["g", "h", "i", "j"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        answered(&mut other, name).await;
        assert!(budget.used() <= 5500, "{}", budget.used());
    }
    drop((one.facts, other.facts));
    one.cancel.cancel();
    other.cancel.cancel();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(budget.used(), 0, "what is gone counts still");
}

#[tokio::test(start_paused = true)]
async fn t3_an_answer_that_is_outdated_or_replaced_counts_once() {
    let budget = Budget::default();
    let mut world = world_within([], &budget);
    answered(&mut world, "a").await;
    let one = budget.used();
    answered(&mut world, "a").await;
    assert_eq!(budget.used(), one);
    world.facts.outdate(&Ask("a"));
    assert_eq!(budget.used(), 0);
}

/// Reads through an executor, as oracles in production do.
struct Reads(Arc<Executor>);

impl LiveReader<Ask> for Reads {
    fn look<'a>(&'a self, _: &'a Ask) -> BoxFuture<'a, Result<u32, LookError>> {
        Box::pin(async {
            let request = Request::get("/api/v1/nodes/n1");
            let answer = self.0.read(&request, Class::Evidence).await;
            answer.map(|_| 0).map_err(|error| LookError::from(&error))
        })
    }
}

/// A namespace whose reads wait for tokens does not delay the read of another one.
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
    let wake: Wake = Arc::new(move |key: ObjectKey| {
        let _ = sender.send(key);
    });
    let (pace, reads, stop) = (
        Pace::default(),
        LiveReads::default(),
        CancellationToken::new(),
    );
    let facts = QueryCache::new(Arc::new(Reads(Arc::new(executor))), wake, pace, reads, stop);
    let ask = |namespace: &str, name: &'static str| {
        let asks = Asks {
            key: ObjectKey::new(namespace, name),
            observed: LogicalTime::now(),
            after: Duration::ZERO,
        };
        facts.ask(Ask(name), asks.asker());
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
