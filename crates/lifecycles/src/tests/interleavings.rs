//! The slots under a model checker: every interleaving of the threads that use their lock.
//!
//! The file of the slots is compiled a second time here, with loom's lock, signal and token instead
//! of those of parking_lot and tokio. loom runs each test once per interleaving, up to three
//! preemptions, and reports deadlocks.
#![allow(dead_code, reason = "the second copy of the slots is not used in full")]

use std::sync::Arc as StdArc;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

use loom::thread::{self, JoinHandle};
use tokio::time::Instant;

// The names by which the slots refer to its sibling modules.
use crate::{object, slot, step};

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::workqueue::Backoff;
use object::{Deadline, Identity};
use slots::{Calls, Next, Slots};
use step::{Ended, Observation, Pace, Run, Work};

#[allow(clippy::duplicate_mod, reason = "compiled twice on purpose")]
#[path = "../slots.rs"]
mod slots;

mod sync {
    //! loom's primitives in the shape of `lifecycles::sync`.

    // A plain `Arc`: loom's would yield to the scheduler while a failure unwinds.
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(super) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(super) fn new(inner: T) -> Self {
            Self(Mutex::new(inner))
        }

        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    /// A flag that a thread can wait for.
    struct Flag {
        up: Mutex<bool>,
        raised: Condvar,
    }

    impl Flag {
        fn new() -> Self {
            Self {
                up: Mutex::new(false),
                raised: Condvar::new(),
            }
        }

        fn raise(&self) {
            *self.up.lock().unwrap() = true;
            self.raised.notify_all();
        }

        fn wait(&self) -> MutexGuard<'_, bool> {
            let mut up = self.up.lock().unwrap();
            while !*up {
                up = self.raised.wait(up).unwrap();
            }
            up
        }
    }

    /// Keeps one signal that is given while no thread waits.
    pub(super) struct Signal(Flag);

    impl Signal {
        pub(super) fn new() -> Self {
            Self(Flag::new())
        }

        pub(super) fn notify_one(&self) {
            self.0.raise();
        }

        pub(super) fn notified(&self) {
            *self.0.wait() = false;
        }
    }

    #[derive(Clone)]
    pub(super) struct Token(Arc<Flag>);

    impl Token {
        pub(super) fn new() -> Self {
            Self(Arc::new(Flag::new()))
        }

        pub(super) fn cancel(&self) {
            self.0.raise();
        }

        pub(super) fn cancelled(&self) {
            drop(self.0.wait());
        }
    }
}

const PACE: Pace = Pace {
    resync: None,
    draw: 1.0,
};

/// The work of a run, which may wait for its token.
type Act = fn(&Run<u8>, &sync::Token) -> Ended;

/// Workers and observers of the same slots.
#[derive(Clone)]
struct Scene(StdArc<Inner>);

struct Inner {
    slots: Slots<u8>,
    act: Act,
    now: Instant,
    /// The runs in order. Not loom's type, because it is not part of what is checked.
    runs: StdMutex<Vec<Run<u8>>>,
    alive: StdMutex<bool>,
    workers: StdMutex<Vec<JoinHandle<()>>>,
}

impl Scene {
    fn new(act: Act) -> Self {
        Self(StdArc::new(Inner {
            slots: Slots::new(),
            act,
            now: Instant::now(),
            runs: StdMutex::default(),
            alive: StdMutex::default(),
            workers: StdMutex::default(),
        }))
    }

    fn key() -> ObjectKey {
        ObjectKey::new("shop", "web")
    }

    /// Records an observation and makes the calls as the driver does.
    fn observe(&self, uid: &'static str, observation: Observation<u8>) {
        let object = Identity::new(Self::key(), Uid::new(uid));
        let calls = self
            .0
            .slots
            .observe(&object, observation, LogicalTime::BEGINNING);
        self.call(calls);
    }

    fn call(&self, mut calls: Calls) {
        calls.fire();
        if let Some((key, signal)) = calls.spawn.take() {
            let scene = self.clone();
            let worker = thread::spawn(move || scene.work(&key, &signal));
            self.0.workers.lock().unwrap().push(worker);
        }
    }

    /// The driver's worker as a thread. Time does not advance, so a sleeping worker has to be
    /// woken.
    fn work(&self, key: &ObjectKey, signal: &sync::Signal) {
        loop {
            match self.0.slots.begin(key, self.0.now) {
                Next::Run(run, token) => {
                    let other = std::mem::replace(&mut *self.0.alive.lock().unwrap(), true);
                    assert!(!other, "two runs for one name");
                    self.0.runs.lock().unwrap().push(run.clone());
                    let ended = (self.0.act)(&run, &token);
                    *self.0.alive.lock().unwrap() = false;
                    drop(self.0.slots.complete(key, ended, PACE, self.0.now));
                }
                Next::Sleep(_) => signal.notified(),
                Next::Exit => return,
            }
        }
    }

    /// Waits until all workers have ended and returns the runs.
    fn end(&self) -> Vec<(String, u8)> {
        loop {
            let Some(worker) = self.0.workers.lock().unwrap().pop() else {
                break;
            };
            worker.join().unwrap();
        }
        assert_eq!(self.0.slots.workers(), 0);
        let runs = self.0.runs.lock().unwrap();
        let line = |run: &Run<u8>| match run.work {
            Work::Sync { snapshot } => (format!("sync {}", run.uid), snapshot),
            Work::Terminate { snapshot, .. } => (format!("terminate {}", run.uid), snapshot),
            Work::CleanUp { snapshot } => (format!("clean {}", run.uid), snapshot),
            Work::TerminateFound { .. } => (format!("remains {}", run.uid), 0),
        };
        runs.iter().map(line).collect()
    }
}

fn check(scene: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(scene);
}

fn succeed(_: &Run<u8>, _: &sync::Token) -> Ended {
    Ended::Done
}

#[test]
fn the_last_observation_is_always_acted_on() {
    check(|| {
        let scene = Scene::new(succeed);
        let other = scene.clone();
        scene.observe("u-1", Observation::Created(1));
        let observe = thread::spawn(move || other.observe("u-1", Observation::Updated(2)));
        observe.join().unwrap();
        let runs = scene.end();
        assert_eq!(runs.last(), Some(&("sync u-1".to_owned(), 2)));
        assert!(runs.len() <= 2, "{runs:?}");
    });
}

#[test]
fn two_concurrent_observations_start_one_worker() {
    check(|| {
        let scene = Scene::new(succeed);
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Updated(1)));
        scene.observe("u-1", Observation::Updated(2));
        observe.join().unwrap();
        let runs = scene.end();
        assert!((1..=2).contains(&runs.len()), "{runs:?}");
    });
}

#[test]
fn a_termination_always_reaches_the_sync_in_flight() {
    // A sync that ends only when it is cancelled: a lost cancellation would be a deadlock.
    fn until_cancelled(run: &Run<u8>, token: &sync::Token) -> Ended {
        if matches!(run.work, Work::Sync { .. }) {
            token.cancelled();
        }
        Ended::Done
    }
    check(|| {
        let scene = Scene::new(until_cancelled);
        scene.observe("u-1", Observation::Created(1));
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Updated(2)));
        // Not a deletion: a later update would be one of an unknown object.
        let deadline = Deadline::NONE;
        scene.observe("u-1", Observation::Kill { deadline });
        observe.join().unwrap();
        let runs = scene.end();
        assert!(runs.iter().any(|(run, _)| run == "clean u-1"), "{runs:?}");
        assert!(runs.iter().filter(|(run, _)| run == "sync u-1").count() <= 1);
    });
}

#[test]
fn a_shorter_deadline_always_reaches_the_termination_in_flight() {
    fn until_the_deadline_is_set(run: &Run<u8>, token: &sync::Token) -> Ended {
        match run.work {
            Work::Terminate { deadline, .. } if deadline == Deadline::NONE => {
                token.cancelled();
                Ended::Failed(Backoff::ERROR)
            }
            _ => Ended::Done,
        }
    }
    check(|| {
        let scene = Scene::new(until_the_deadline_is_set);
        let deadline = Deadline::at(scene.0.now);
        let snapshot = 1;
        scene.observe(
            "u-1",
            Observation::Terminating {
                snapshot,
                deadline: Deadline::NONE,
            },
        );
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Kill { deadline }));
        observe.join().unwrap();
        let runs = scene.end();
        assert_eq!(runs.last(), Some(&("clean u-1".to_owned(), 1)));
    });
}

#[test]
fn a_worker_that_backs_off_is_always_woken_by_a_change() {
    fn fail_the_first(run: &Run<u8>, _: &sync::Token) -> Ended {
        match run.work {
            Work::Sync { snapshot: 1 } => {
                let hour = Duration::from_secs(3600);
                Ended::Failed(Backoff::new(hour, hour))
            }
            _ => Ended::Done,
        }
    }
    check(|| {
        let scene = Scene::new(fail_the_first);
        scene.observe("u-1", Observation::Created(1));
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Updated(2)));
        observe.join().unwrap();
        let runs = scene.end();
        assert_eq!(runs.last(), Some(&("sync u-1".to_owned(), 2)));
    });
}

#[test]
fn a_new_object_of_a_name_never_begins_before_the_older_one_has_finished() {
    check(|| {
        let scene = Scene::new(succeed);
        scene.observe("u-1", Observation::Created(1));
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Deleted));
        scene.observe("u-2", Observation::Created(2));
        observe.join().unwrap();
        let runs = scene.end();
        let first = runs.iter().position(|(run, _)| run == "sync u-2");
        let last = runs.iter().rposition(|(run, _)| run.ends_with("u-1"));
        assert!(first > last, "{runs:?}");
        assert_eq!(runs.last(), Some(&("sync u-2".to_owned(), 2)));
    });
}

#[test]
fn a_name_whose_work_has_finished_is_removed_and_can_be_reused() {
    check(|| {
        let scene = Scene::new(succeed);
        scene.observe("u-1", Observation::Created(1));
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Deleted));
        observe.join().unwrap();
        scene.end();
        assert_eq!(scene.0.slots.names(), 0);
        scene.observe("u-1", Observation::Created(3));
        assert_eq!(scene.end().last(), Some(&("sync u-1".to_owned(), 3)));
    });
}

#[test]
fn a_name_that_becomes_empty_while_it_has_a_worker_gets_no_second_worker() {
    check(|| {
        let scene = Scene::new(succeed);
        let (snapshot, deadline) = (1, Deadline::NONE);
        scene.observe("u-1", Observation::Terminating { snapshot, deadline });
        let other = scene.clone();
        let observe = thread::spawn(move || {
            other.observe("u-1", Observation::Deleted);
            other.observe("u-2", Observation::Created(2));
        });
        observe.join().unwrap();
        // The gate asserts that a name has one worker at a time.
        assert_eq!(scene.end().last(), Some(&("sync u-2".to_owned(), 2)));
    });
}

#[test]
fn a_shutdown_reaches_every_run_and_every_worker() {
    fn until_cancelled(_: &Run<u8>, token: &sync::Token) -> Ended {
        token.cancelled();
        Ended::Failed(Backoff::ERROR)
    }
    check(|| {
        let scene = Scene::new(until_cancelled);
        scene.observe("u-1", Observation::Created(1));
        let other = scene.clone();
        let observe = thread::spawn(move || other.observe("u-1", Observation::Updated(2)));
        for calls in scene.0.slots.close() {
            scene.call(calls);
        }
        observe.join().unwrap();
        assert!(scene.end().len() <= 1);
    });
}
