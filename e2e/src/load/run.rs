//! The run itself: creates pods at the rate, does the next step of each, and stops when the fate of all is known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Client;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::judge::{Counts, Judge, Seen};
use super::leaders::Disruptor;
use super::nodes::Nodes;
use super::plan::Plan;
use super::requests;
use super::screen::Screen;
use super::step::{self, LoadStep};
use super::summary::{self, Summary};
use super::watch::{self, Observed};

/// Requests at the same time.
const PARALLEL: usize = 32;
/// Between two counts of all pods.
const COUNT: Duration = Duration::from_millis(250);

/// Creates the pods of the plan and follows them until the fate of all is known. Removes nothing.
pub(super) async fn run(
    client: &Client,
    plan: &Plan,
    disruptor: &mut (dyn Disruptor + 'static),
) -> Result<Summary> {
    ensure!(plan.rate > 0.0, "the rate must be greater than 0");
    let nodes = Nodes::prepare(client, plan).await?;
    let (sender, mut observed) = mpsc::unbounded_channel();
    let mut work = JoinSet::new();
    let following = tokio::spawn(watch::follow(client.clone(), plan.selector(), sender));
    let mut state = State::new(client, plan, nodes);
    let (disruptions, mut disrupted) = mpsc::unbounded_channel();
    let disrupting = disrupt(disruptor, plan, disruptions);
    let mut disrupting = std::pin::pin!(disrupting);
    let mut create = tokio::time::interval(Duration::from_secs_f64(1.0 / plan.rate));
    let mut count = tokio::time::interval(COUNT);
    for timer in [&mut create, &mut count] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            Some(change) = observed.recv() => state.take(change, &mut work),
            _ = create.tick(), if state.may_create() => state.create(&mut work)?,
            _ = count.tick() => if state.count() { break },
            Some(done) = work.join_next() => state.done(done??),
            Some(what) = disrupted.recv() => state.disrupted(&what),
            failed = &mut disrupting => failed?,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    following.abort();
    work.shutdown().await;
    Ok(state.summary())
}

/// Disturbs Belayer again and again, as often as the plan says.
async fn disrupt(
    disruptor: &mut (dyn Disruptor + 'static),
    plan: &Plan,
    disruptions: mpsc::UnboundedSender<String>,
) -> Result<()> {
    let Some(every) = plan.kill_leader else {
        return std::future::pending().await;
    };
    let mut done = 0;
    loop {
        // A leader that is killed at once would do nothing.
        disruptor.settled().await?;
        if plan.disruptions.is_some_and(|enough| done >= enough) {
            return std::future::pending().await;
        }
        tokio::time::sleep(every).await;
        disruptions.send(disruptor.disrupt().await?)?;
        done += 1;
    }
}

/// What a finished request was about.
enum Done {
    Created(String, String),
    Stepped,
}

struct State<'a> {
    client: &'a Client,
    plan: &'a Plan,
    nodes: Nodes,
    judge: Judge,
    screen: Screen,
    parallel: Arc<Semaphore>,
    started: Instant,
    /// How many creates were sent.
    sent: usize,
    lists: usize,
    disruptions: usize,
    counts: Counts,
    changed: Instant,
    steps: BTreeSet<(String, LoadStep)>,
}

impl<'a> State<'a> {
    fn new(client: &'a Client, plan: &'a Plan, nodes: Nodes) -> Self {
        Self {
            client,
            plan,
            nodes,
            judge: Judge::new(plan.max_retries),
            screen: Screen::new(plan),
            parallel: Arc::new(Semaphore::new(PARALLEL)),
            started: Instant::now(),
            sent: 0,
            lists: 0,
            disruptions: 0,
            counts: Counts::default(),
            changed: Instant::now(),
            steps: BTreeSet::new(),
        }
    }

    /// Whether the nodes have room for another pod.
    fn may_create(&self) -> bool {
        // Pods that were sent since the last count are live, too.
        let uncounted = self.sent.saturating_sub(self.counts.created);
        (self.sent < self.plan.pods || self.is_disturbed())
            && self.lists > 0
            && self.counts.live + uncounted < self.nodes.room(self.plan)
    }

    fn create(&mut self, work: &mut JoinSet<Result<Done>>) -> Result<()> {
        let index = self.sent;
        self.sent += 1;
        let pod = self.plan.pod(index, self.nodes.hostname(index))?;
        let (namespace, name) = (self.plan.namespace(index).to_owned(), self.plan.name(index));
        let (client, parallel) = (self.client.clone(), Arc::clone(&self.parallel));
        work.spawn(async move {
            let _turn = parallel.acquire().await?;
            requests::create(&client, &namespace, &pod).await?;
            Ok(Done::Created(namespace, name))
        });
        Ok(())
    }

    fn done(&mut self, done: Done) {
        if let Done::Created(namespace, name) = done {
            self.judge.created(&namespace, &name);
        }
    }

    fn take(&mut self, observed: Observed, work: &mut JoinSet<Result<Done>>) {
        let now = self.started.elapsed();
        match observed {
            Observed::Seen(seen) => self.seen(now, seen, work),
            Observed::Removed(seen) => self.judge.removed(now, &seen),
            Observed::Listed(all) => {
                self.lists += 1;
                self.judge
                    .listed(&all.iter().map(|seen| seen.uid.as_str()).collect());
                for seen in all {
                    self.seen(now, seen, work);
                }
            }
        }
    }

    fn seen(&mut self, now: Duration, seen: Seen, work: &mut JoinSet<Result<Done>>) {
        let before = self.judge.seen(now, &seen);
        let Some(step) = step::next(self.plan, &self.nodes, &seen, before) else {
            return;
        };
        if !self.steps.insert((seen.uid.clone(), step.clone())) {
            return;
        }
        let (client, parallel) = (self.client.clone(), Arc::clone(&self.parallel));
        work.spawn(async move {
            let _turn = parallel.acquire().await?;
            requests::take(&client, &seen, &step).await?;
            Ok(Done::Stepped)
        });
    }

    fn disrupted(&mut self, what: &str) {
        self.disruptions += 1;
        let second = self.started.elapsed().as_secs();
        self.screen.event(&format!("{second} s: {what}"));
    }

    /// Whether disruptions of the plan are left.
    fn is_disturbed(&self) -> bool {
        let planned = self.plan.disruptions.unwrap_or_default();
        self.disruptions < planned
    }

    /// Counts all pods. Returns whether the run has ended.
    fn count(&mut self) -> bool {
        let counts = self.judge.counts();
        if counts != self.counts {
            self.counts = counts;
            self.changed = Instant::now();
        }
        self.screen.show(&self.counts);
        let is_decided = self.is_complete() && counts.is_decided();
        let wait = if is_decided {
            self.plan.settle
        } else {
            self.plan.patience
        };
        self.changed.elapsed() >= wait
    }

    fn is_complete(&self) -> bool {
        self.counts.created >= self.plan.pods && !self.is_disturbed()
    }

    fn summary(self) -> Summary {
        let run = summary::Run {
            duration: self.started.elapsed(),
            disruptions: self.disruptions,
            // The first one is not an interruption.
            interruptions: self.lists.saturating_sub(1),
            is_complete: self.is_complete(),
        };
        Summary::of(&self.judge, run)
    }
}
