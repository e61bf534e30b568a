//! Held objects of one kind: how many are held, wait for their deletion and are unselected, and since when.
//!
//! The numbers are updated at every event before its key is queued, so that a decision reads the numbers after its
//! event.
//!
//! The example of [`HeldObjects`] counts one.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::selection::{Exceeded, Guard, MassRelease, MaxUnselected, UnselectedBy};
use belayer_core::clock;
use belayer_core::informer::{Lookup, Store, Stored};
use belayer_core::object::ObjectKey;
use belayer_core::slim::Slim;

/// What is recorded about an object. The example of
/// [`HeldObjects`] records a deletion timestamp.
pub trait Noted: Clone + PartialEq {
    /// Since when its deletion waits, if it counts as waiting.
    fn waits_since(&self) -> Option<Timestamp>;

    /// Whether it is held. The deletion of an object that is not held may wait as well.
    fn is_held(&self) -> bool {
        true
    }

    /// Why the configuration does not select it, if it does not.
    fn unselected(&self) -> Option<UnselectedBy> {
        None
    }

    /// Replaces that reason.
    fn set_unselected(&mut self, _: UnselectedBy) {}

    /// Why it counts as unselected, if it does.
    fn counted(&self) -> Option<UnselectedBy> {
        self.unselected()
    }
}

/// A held object, of which only the deletion timestamp is recorded.
impl Noted for Option<Timestamp> {
    fn waits_since(&self) -> Option<Timestamp> {
        *self
    }
}

/// The numbers. Returned by [`HeldObjects::counts`](crate::held_objects::HeldObjects::counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Held objects.
    pub held: usize,
    /// Unselected held objects.
    pub unselected: usize,
    /// Objects whose deletion waits.
    pub waiting: usize,
}

/// Counts held objects.
///
/// ```
/// use std::sync::Arc;
/// use belayer_core::ObjectKey;
/// use belayer_holds::held_objects::HeldObjects;
/// use jiff::Timestamp;
///
/// let held = HeldObjects::default();
/// let key = ObjectKey::new("shop", "web-0");
/// let deleted = Some(Timestamp::UNIX_EPOCH);
/// held.note(&key, Some(deleted));
/// assert_eq!((held.counts().held, held.counts().waiting), (1, 1));
/// ```
#[derive(Debug)]
pub struct HeldObjects<T> {
    max_unselected: MaxUnselected,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    objects: HashMap<ObjectKey, T>,
    waiting: BTreeSet<(Timestamp, ObjectKey)>,
    held: usize,
    unselected: usize,
    guard: Guard,
}

impl<T> Inner<T> {
    fn new(max_unselected: MaxUnselected) -> Self {
        Self {
            objects: HashMap::new(),
            waiting: BTreeSet::new(),
            held: 0,
            unselected: 0,
            guard: Guard::new(max_unselected),
        }
    }
}

/// Calls `note` with the object as the store has it, also if it is absent, and again as long as the store has another version afterwards.
/// For handlers of other kinds: the handler of this kind runs beside them, and an object that was just removed would be counted for ever.
/// [`HeldObjects`] counts what `note` passes on.
pub fn note_current<K: Slim>(
    store: &Store<K>,
    key: &ObjectKey,
    mut note: impl FnMut(Option<&Stored<K>>),
) {
    let mut noted = None;
    loop {
        let object = match store.lookup(key) {
            Lookup::Unknown => return,
            Lookup::Absent => None,
            Lookup::Found(object) => Some(object),
        };
        let version = object.as_ref().map(|it| it.object.resource_version());
        if noted == Some(version) {
            return;
        }
        note(object.as_ref());
        noted = Some(version);
    }
}

impl<T: Noted> Default for HeldObjects<T> {
    fn default() -> Self {
        Self::new(MaxUnselected::default())
    }
}

impl<T: Noted> HeldObjects<T> {
    /// Nothing is held yet.
    pub fn new(max_unselected: MaxUnselected) -> Self {
        Self {
            max_unselected,
            inner: Mutex::new(Inner::new(max_unselected)),
        }
    }

    /// Records the current value of `key`; `None` if it is irrelevant now. Returns the previous value.
    ///
    /// The reason why an object is unselected stays the one with which that began, whatever changes later.
    pub fn note(&self, key: &ObjectKey, object: Option<T>) -> Option<T> {
        self.inner.lock().note(key, object)
    }

    /// Forgets everything: the kind is not served any more.
    pub fn clear(&self) {
        *self.inner.lock() = Inner::new(self.max_unselected);
    }

    /// What is recorded about an object.
    pub fn get(&self, key: &ObjectKey) -> Option<T> {
        self.inner.lock().objects.get(key).cloned()
    }

    /// The numbers now.
    pub fn counts(&self) -> Counts {
        let inner = self.inner.lock();
        Counts {
            held: inner.held,
            unselected: inner.unselected,
            waiting: inner.waiting.len(),
        }
    }

    /// The deletion timestamp that has waited longest.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.inner.lock().waiting.first().map(|(since, _)| *since)
    }

    /// The objects whose deletion waits, the longest waiting first.
    pub fn waiting(&self) -> Vec<(ObjectKey, T)> {
        let inner = self.inner.lock();
        let noted = |(_, key): &(Timestamp, ObjectKey)| {
            Some((key.clone(), inner.objects.get(key)?.clone()))
        };
        inner.waiting.iter().filter_map(noted).collect()
    }

    /// Whether an object may be released because nothing selects it.
    pub fn mass_release(&self, key: &ObjectKey) -> MassRelease {
        let mut inner = self.inner.lock();
        let by = inner.objects.get(key).and_then(T::counted);
        let namespace = key.shared_namespace();
        by.map_or(MassRelease::Within, |by| inner.guard.of(namespace, by))
    }

    /// Whether objects that [`HeldObjects::mass_release`] has kept may be released now.
    pub fn has_eased(&self) -> bool {
        self.inner.lock().guard.has_eased()
    }

    /// What is kept although nothing selects it.
    pub fn exceeded(&self) -> Exceeded {
        self.inner.lock().guard.exceeded()
    }

    /// How many unselected objects are kept.
    pub fn kept(&self) -> usize {
        self.inner.lock().guard.kept()
    }

    /// All objects, sorted by key.
    pub fn list(&self) -> Vec<(ObjectKey, T)> {
        let inner = self.inner.lock();
        let all = inner.objects.iter();
        let mut all: Vec<_> = all.map(|(key, it)| (key.clone(), it.clone())).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// The keys of held objects that nothing selects, sorted.
    pub fn unselected(&self) -> Vec<ObjectKey> {
        let all = self.list().into_iter();
        let unselected = all.filter(|(_, it)| it.counted().is_some());
        unselected.map(|(key, _)| key).collect()
    }
}

impl<T: Noted> Inner<T> {
    fn note(&mut self, key: &ObjectKey, object: Option<T>) -> Option<T> {
        let known = self.objects.get(key);
        let since = known.and_then(T::unselected);
        let object = object.map(|mut now| {
            if let Some(since) = since.filter(|_| now.unselected().is_some()) {
                now.set_unselected(since);
            }
            now
        });
        if known == object.as_ref() {
            return object;
        }
        let held = |it: &T| it.is_held().then(|| it.counted());
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
}

/// The interval at which a controller publishes its held objects and acts on their number. This only reads a few
/// counters.
pub const EVERY: Duration = Duration::from_millis(500);

/// Publishes how many objects a controller holds, how many of them wait, and how long the oldest
/// has waited. The numbers are those of [`HeldObjects`].
pub fn publish<'a, T: Noted + 'a>(
    controller: &'static str,
    kinds: impl IntoIterator<Item = &'a HeldObjects<T>>,
) {
    let (mut held, mut waiting, mut oldest) = (0, 0, None);
    for kind in kinds {
        let counts = kind.counts();
        held += counts.held;
        waiting += counts.waiting;
        oldest = [oldest, kind.oldest_waiting()].into_iter().flatten().min();
    }
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => controller).set(value);
    gauge(belayer_metrics::HOLDS, held as f64);
    gauge(belayer_metrics::WAITING, waiting as f64);
    let age = |since| clock::now().duration_since(since).as_secs_f64();
    gauge(
        belayer_metrics::OLDEST_WAITING,
        oldest.map_or(0.0, age).max(0.0),
    );
}
