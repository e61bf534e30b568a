//! Held objects of one kind: how many are held, wait for their deletion and are unselected, and since when.
//!
//! The numbers are updated at every event before its key is queued, so that a decision reads the numbers after its
//! event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::selection::{Guard, MassRelease, MaxUnselected, UnselectedBy};
use belayer_core::object::ObjectKey;

/// What is recorded about an object.
pub trait Noted: Clone + PartialEq {
    /// Since when its deletion waits, if it counts as waiting.
    fn waits_since(&self) -> Option<Timestamp>;

    /// Whether it is held. The deletion of an object that is not held may wait as well.
    fn is_held(&self) -> bool {
        true
    }

    /// Whether the configuration selects it.
    fn selected(&self) -> Selected {
        Selected::Yes
    }

    /// The same object with an earlier value of [`selected`](Self::selected).
    #[must_use]
    fn with_selected(self, _: Selected) -> Self {
        self
    }

    /// Why it counts as unselected, if it does.
    fn unselected(&self) -> Option<UnselectedBy> {
        match self.selected() {
            Selected::Yes => None,
            Selected::No(by) => Some(by),
        }
    }
}

/// Whether the configuration selects a held object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selected {
    /// It does.
    Yes,
    /// It does not, for this reason.
    No(UnselectedBy),
}

/// The numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Held objects.
    pub held: usize,
    /// Unselected held objects.
    pub unselected: usize,
    /// Objects whose deletion waits.
    pub waiting: usize,
}

/// Counts held objects, without a lock, for callers that protect more data with one lock; others use
/// [`HeldObjects`].
#[derive(Debug)]
pub struct Tally<T> {
    objects: HashMap<ObjectKey, T>,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
    held: usize,
    unselected: usize,
    guard: Guard,
}

impl<T: Noted> Tally<T> {
    /// Nothing is held yet.
    pub fn new(max_unselected: MaxUnselected) -> Self {
        Self {
            objects: HashMap::new(),
            waiting: BTreeSet::new(),
            held: 0,
            unselected: 0,
            guard: Guard::new(max_unselected),
        }
    }

    /// Records the current value of `key`; `None` if it is irrelevant now. Returns the previous value.
    ///
    /// The reason why an object is unselected remains the first one, whatever changes later.
    pub fn note(&mut self, key: &ObjectKey, object: Option<T>) -> Option<T> {
        let known = self.objects.get(key);
        let object = object.map(|now| match (known.map(T::selected), now.selected()) {
            (Some(since @ Selected::No(_)), Selected::No(_)) => now.with_selected(since),
            _ => now,
        });
        if known == object.as_ref() {
            return object;
        }
        let held = |it: &T| it.is_held().then(|| it.unselected());
        let (was, is) = (known.and_then(held), object.as_ref().and_then(held));
        if was != is {
            if let Some(by) = was {
                self.guard.remove(key.shared_namespace(), by);
                self.held -= 1;
                self.unselected -= usize::from(by.is_some());
            }
            if let Some(by) = is {
                self.guard.add(key.shared_namespace(), by);
                self.held += 1;
                self.unselected += usize::from(by.is_some());
            }
        }
        let waits = T::waits_since;
        let (was, is) = (known.and_then(waits), object.as_ref().and_then(waits));
        if was != is {
            if let Some(since) = was {
                self.waiting.remove(&(since, key.clone()));
            }
            if let Some(since) = is {
                self.waiting.insert((since, key.clone()));
            }
        }
        match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(key),
        }
    }

    /// What is recorded about an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.objects.get(key)
    }

    /// The current numbers.
    pub fn counts(&self) -> Counts {
        Counts {
            held: self.held,
            unselected: self.unselected,
            waiting: self.waiting.len(),
        }
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.waiting.first().map(|(since, _)| *since)
    }

    /// The objects whose deletion waits, the longest waiting first.
    pub fn waiting(&self) -> Vec<(ObjectKey, T)> {
        let waiting = self.waiting.iter();
        let noted =
            |(_, key): &(Timestamp, ObjectKey)| Some((key.clone(), self.objects.get(key)?.clone()));
        waiting.filter_map(noted).collect()
    }

    fn clear(&mut self) {
        self.objects.clear();
        self.waiting.clear();
        self.guard.clear();
        (self.held, self.unselected) = (0, 0);
    }

    /// Whether an object may be released because it is unselected.
    pub fn mass_release(&mut self, key: &ObjectKey) -> MassRelease {
        let by = self.objects.get(key).and_then(T::unselected);
        let namespace = key.shared_namespace();
        by.map_or(MassRelease::Within, |by| self.guard.of(namespace, by))
    }

    /// Which unselected objects are kept: over the cluster, and in each namespace that exceeds its own limit.
    pub fn exceeded(&mut self) -> (MassRelease, BTreeMap<Arc<str>, MassRelease>) {
        self.guard.exceeded()
    }

    /// How many unselected objects are kept.
    pub fn kept(&mut self) -> usize {
        self.guard.kept()
    }

    /// All objects, sorted by key.
    pub fn list(&self) -> Vec<(ObjectKey, T)> {
        let all = self.objects.iter();
        let mut all: Vec<_> = all.map(|(key, it)| (key.clone(), it.clone())).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// The keys of unselected held objects, sorted.
    pub fn unselected(&self) -> Vec<ObjectKey> {
        let all = self.objects.iter();
        let unselected = all.filter(|(_, it)| it.unselected().is_some());
        let mut keys: Vec<_> = unselected.map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }
}

/// Counts held objects.
#[derive(Debug)]
pub struct HeldObjects<T>(Mutex<Tally<T>>);

impl<T: Noted> Default for HeldObjects<T> {
    fn default() -> Self {
        Self::new(MaxUnselected::default())
    }
}

impl<T: Noted> HeldObjects<T> {
    /// Nothing is held yet.
    pub fn new(max_unselected: MaxUnselected) -> Self {
        Self(Mutex::new(Tally::new(max_unselected)))
    }

    /// As [`Tally::note`].
    pub fn note(&self, key: &ObjectKey, object: Option<T>) -> Option<T> {
        self.0.lock().note(key, object)
    }

    /// Removes everything: the kind is no longer served.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// As [`Tally::counts`].
    pub fn counts(&self) -> Counts {
        self.0.lock().counts()
    }

    /// As [`Tally::oldest_waiting`].
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.0.lock().oldest_waiting()
    }

    /// As [`Tally::mass_release`].
    pub fn mass_release(&self, key: &ObjectKey) -> MassRelease {
        self.0.lock().mass_release(key)
    }

    /// As [`Tally::exceeded`].
    pub fn exceeded(&self) -> (MassRelease, BTreeMap<Arc<str>, MassRelease>) {
        self.0.lock().exceeded()
    }

    /// As [`Tally::kept`].
    pub fn kept(&self) -> usize {
        self.0.lock().kept()
    }

    /// As [`Tally::waiting`].
    pub fn waiting(&self) -> Vec<(ObjectKey, T)> {
        self.0.lock().waiting()
    }

    /// As [`Tally::unselected`].
    pub fn unselected(&self) -> Vec<ObjectKey> {
        self.0.lock().unselected()
    }
}

/// Publishes how many objects a controller holds, how many of them wait, and how long the oldest has waited.
pub fn publish(
    controller: &'static str,
    counts: Counts,
    oldest_waiting: Option<Timestamp>,
    now: Timestamp,
) {
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => controller).set(value);
    gauge(belayer_metrics::HOLDS, counts.held as f64);
    gauge(belayer_metrics::WAITING, counts.waiting as f64);
    let age = oldest_waiting.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
    gauge(belayer_metrics::OLDEST_WAITING, age.max(0.0));
}
