//! The inbox under a model checker: every interleaving of threads that submit operations and
//! threads that take keys.
//!
//! The file of the inbox is compiled a second time here, with loom's lock and atomics. loom runs
//! each test once per interleaving, up to three preemptions.
#![allow(dead_code, reason = "the second copy of the inbox is not used in full")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize as Count, Ordering::SeqCst};
use std::task::{Wake, Waker};

use loom::thread;

// The names by which the inbox refers to its sibling modules.
use crate::workqueue::{durations, metrics, priority, state, wait};

use crate::workqueue::clock::Tick;
use crate::workqueue::table::Hasher;
use inbox::Inbox;
use metrics::{Metering, Meters};
use priority::{Ageing, Priority};
use state::operation::Operation;
use state::{Completion, Phase, Polled, Taken, When};
use wait::Ticket;

#[allow(clippy::duplicate_mod, reason = "compiled twice on purpose")]
#[path = "../inbox.rs"]
mod inbox;

mod sync {
    //! loom's primitives in the shape of `workqueue::sync`.

    use std::ops::{Deref, DerefMut};

    use loom::sync::{Mutex, MutexGuard};

    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

    pub(super) struct Lock<T> {
        inner: Mutex<T>,
        /// loom does not interleave a release of a lock with a `try_lock`, so the interleavings in
        /// which `try_lock` fails would never run. It does interleave two writes to this atomic.
        tries: AtomicUsize,
    }

    pub(super) struct Guard<'a, T> {
        inner: MutexGuard<'a, T>,
        lock: &'a Lock<T>,
    }

    impl<T> Lock<T> {
        pub(super) fn new(inner: T) -> Self {
            Self {
                inner: Mutex::new(inner),
                tries: AtomicUsize::new(0),
            }
        }

        pub(super) fn lock(&self) -> Guard<'_, T> {
            Guard {
                inner: self.inner.lock().unwrap(),
                lock: self,
            }
        }

        pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.tries.fetch_add(1, Ordering::Relaxed);
            let inner = self.inner.try_lock().ok()?;
            Some(Guard { inner, lock: self })
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }

    impl<T> Drop for Guard<'_, T> {
        fn drop(&mut self) {
            self.lock.tries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the notifications. No task waits for them here.
    pub(super) struct Notify(std::sync::atomic::AtomicUsize);

    impl Notify {
        pub(super) fn new() -> Self {
            Self(std::sync::atomic::AtomicUsize::new(0))
        }

        pub(super) fn notify_waiters(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }

        pub(super) fn notified(&self) -> usize {
            self.0.load(std::sync::atomic::Ordering::SeqCst)
        }
    }
}

const NOW: Tick = Tick(1);

/// A queue of numbers.
struct Scene {
    inbox: Inbox<u8>,
    hasher: Hasher,
}

#[derive(Default)]
struct Woken(Count);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A waiter that polls for a key and may sleep.
#[derive(Default)]
struct Sleeper {
    ticket: Option<Ticket>,
    woken: Arc<Woken>,
}

impl Scene {
    fn new() -> Arc<Self> {
        let meters = Meters::new(&"scene".into(), Metering::Off);
        Arc::new(Self {
            inbox: Inbox::new(Ageing::default(), meters),
            hasher: Hasher::default(),
        })
    }

    fn add(&self, key: u8) {
        self.inbox.submit(Operation::Add {
            hash: self.hasher.hash(&key),
            key,
            priority: Priority::Normal,
            when: When::Now,
            now: NOW,
        });
    }

    fn finish(&self, index: u32) {
        let completion = Completion::Succeeded;
        self.inbox.submit(Operation::Finish {
            index,
            completion,
            now: NOW,
        });
    }

    fn take(&self) -> Option<Taken<u8>> {
        self.inbox.with(|state| (state.take(NOW), Vec::new()))
    }

    /// Runs `this` and `that` concurrently, on threads of their own.
    fn concurrently(
        self: &Arc<Self>,
        this: impl FnOnce(&Self) + Send + 'static,
        that: impl FnOnce(&Self),
    ) {
        let scene = Arc::clone(self);
        let other = thread::spawn(move || this(&scene));
        that(self);
        other.join().unwrap();
    }
}

impl Sleeper {
    /// Polls once. Returns the key, or `None` if the waiter sleeps now.
    fn poll(&mut self, scene: &Scene) -> Option<u8> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let ticket = &mut self.ticket;
        let inbox = &scene.inbox;
        match inbox.with(|state| (state.poll(ticket, &waker, NOW), Vec::new())) {
            Polled::Taken(taken) => Some(taken.key),
            Polled::Nothing { .. } | Polled::Closed => None,
        }
    }

    /// Polls once for each wake-up.
    fn poll_while_woken(&mut self, scene: &Scene) -> Option<u8> {
        while self.woken.0.swap(0, SeqCst) > 0 {
            if let Some(key) = self.poll(scene) {
                return Some(key);
            }
        }
        None
    }
}

fn check(scene: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(scene);
}

#[test]
fn a_waiter_gets_a_key_that_is_added_while_it_falls_asleep() {
    check(|| {
        let scene = Scene::new();
        let mut sleeper = Sleeper::default();
        let mut found = None;
        scene.concurrently(|scene| scene.add(1), |scene| found = sleeper.poll(scene));
        let found = found.or_else(|| sleeper.poll_while_woken(&scene));
        assert_eq!(found, Some(1), "asleep although a key is ready");
    });
}

#[test]
fn two_keys_wake_two_sleepers() {
    check(|| {
        let scene = Scene::new();
        let (mut one, mut two) = (Sleeper::default(), Sleeper::default());
        let mut found = vec![one.poll(&scene)];
        scene.concurrently(
            |scene| {
                scene.add(1);
                scene.add(2);
            },
            |scene| found.push(two.poll(scene)),
        );
        for sleeper in [&mut one, &mut two] {
            found.push(sleeper.poll_while_woken(&scene));
        }
        let found: BTreeSet<_> = found.into_iter().flatten().collect();
        assert_eq!(found, [1, 2].into());
    });
}

#[test]
fn the_rerun_of_a_key_wakes_a_waiter() {
    check(|| {
        let scene = Scene::new();
        scene.add(1);
        let index = scene.take().expect("a key is ready").index;
        scene.add(1);
        let mut sleeper = Sleeper::default();
        let mut found = None;
        scene.concurrently(
            move |scene| scene.finish(index),
            |scene| found = sleeper.poll(scene),
        );
        let found = found.or_else(|| sleeper.poll_while_woken(&scene));
        assert_eq!(found, Some(1), "its second run was lost");
    });
}

#[test]
fn the_end_of_the_last_work_ends_a_concurrent_drain() {
    check(|| {
        let scene = Scene::new();
        scene.add(1);
        let index = scene.take().expect("a key is ready").index;
        scene.concurrently(
            move |scene| scene.finish(index),
            |scene| {
                let close = |state: &mut state::State<u8>| ((), state.close(Phase::Draining));
                scene.inbox.with(close);
            },
        );
        assert_eq!(
            scene.inbox.pending_len(),
            0,
            "a pending operation was left behind"
        );
        assert!(
            scene.inbox.idle.notified() > 0,
            "the waiter for the end still sleeps"
        );
    });
}

#[test]
fn an_add_that_has_returned_is_visible_to_all_threads() {
    check(|| {
        let scene = Scene::new();
        scene.concurrently(
            |scene| scene.add(1),
            |scene| {
                scene.add(2);
                let first = scene.take().expect("a key was added");
                assert!([1, 2].contains(&first.key));
            },
        );
        let left: Vec<_> = std::iter::from_fn(|| scene.take()).collect();
        assert_eq!(left.len(), 1);
    });
}
