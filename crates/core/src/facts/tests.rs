use std::collections::VecDeque;

use super::*;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ask(&'static str);

impl Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Question for Ask {
    type Answer = u32;

    const NAME: &'static str = "ask";

    fn outcome(_: &u32) -> &'static str {
        "number"
    }
}

/// Answers in order, each after a second; an `Err` says how long to wait.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Result<u32, Option<Duration>>>>,
    looks: Mutex<Vec<Instant>>,
}

impl Oracle<Ask> for Script {
    fn look<'a>(&'a self, _: &'a Ask) -> BoxFuture<'a, Result<u32, LookError>> {
        Box::pin(async {
            self.looks.lock().push(Instant::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
            let answer = self.answers.lock().pop_front().unwrap_or(Ok(0));
            answer.map_err(|retry_after| LookError {
                message: "no".into(),
                retry_after,
            })
        })
    }
}

struct World {
    facts: Facts<Ask>,
    script: Arc<Script>,
    woken: tokio::sync::mpsc::UnboundedReceiver<ObjectKey>,
    cancel: CancellationToken,
}

fn world(answers: impl IntoIterator<Item = Result<u32, Option<Duration>>>) -> World {
    let script = Arc::new(Script {
        answers: Mutex::new(answers.into_iter().collect()),
        ..Script::default()
    });
    let (sender, woken) = tokio::sync::mpsc::unbounded_channel();
    let wake: Wake = Arc::new(move |key| {
        let _ = sender.send(key);
    });
    let cancel = CancellationToken::new();
    let facts = Facts::new(script.clone(), wake, Pace::default(), cancel.clone());
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

const Q: Ask = Ask("is it so");

#[tokio::test(start_paused = true)]
async fn one_look_serves_all_who_wait() {
    let mut world = world([Ok(7)]);
    for name in ["x", "y", "z"] {
        world.facts.ask(Q, key(name), Duration::ZERO);
    }
    for name in ["x", "y", "z"] {
        assert_eq!(world.woken.recv().await, Some(key(name)));
    }
    assert_eq!(world.script.looks.lock().len(), 1);
    assert_eq!(world.facts.get(&Q).map(|fact| *fact.answer()), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_fact_knows_when_its_look_began() {
    let mut world = world([Ok(7)]);
    let before = Moment::now();
    world.facts.ask(Q, key("x"), Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let during = Moment::now();
    // Somebody who asks during the look is served by it, and can tell that it began too early.
    world.facts.ask(Q, key("y"), Duration::ZERO);
    assert!(world.woken.recv().await.is_some() && world.woken.recv().await.is_some());
    let begun = world.facts.get(&Q).unwrap().begun();
    assert!(before < begun && begun < during);
    world.facts.ask(Q, key("y"), Duration::ZERO);
    assert_eq!(world.woken.recv().await, Some(key("y")));
    assert!(world.facts.get(&Q).unwrap().begun() > during);
    assert_eq!(world.script.looks.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_is_no_answer_and_is_repeated() {
    let mut world = world([Err(None), Err(Some(Duration::from_secs(60))), Ok(1)]);
    let begun = Instant::now();
    world.facts.ask(Q, key("x"), Duration::ZERO);
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
async fn looks_that_fail_again_and_again_are_told_once_and_so_is_their_end() {
    let log = crate::logged::Log::kept();
    let answers = [Err(None), Err(None), Err(None), Err(None), Err(None), Ok(7)];
    let mut world = world(answers);
    world.facts.ask(Q, key("a"), Duration::ZERO);
    world.woken.recv().await.unwrap();
    assert_eq!(log.lines("live looks fail").len(), 1);
    assert_eq!(log.lines("answered again").len(), 1);
    assert_eq!(log.lines("WARN").len(), 1, "{:#?}", log.lines(""));
}

#[tokio::test(start_paused = true)]
async fn a_look_can_be_put_off_and_pulled_forward() {
    let mut world = world([Ok(1), Ok(2)]);
    let begun = Instant::now();
    world.facts.ask(Q, key("x"), Duration::from_secs(100));
    world.facts.ask(Q, key("y"), Duration::from_secs(10));
    world.facts.ask(Q, key("z"), Duration::from_secs(50));
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
        world.facts.ask(Q, key("x"), Duration::ZERO);
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
    world.facts.ask(Q, key("x"), Duration::ZERO);
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
    world.facts.ask(Q, key("x"), Duration::ZERO);
    world.cancel.cancel();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.woken.try_recv().is_err());
}
