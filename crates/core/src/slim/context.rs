use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;

/// What a decoder needs besides the bytes: which labels and annotations to keep, and where equal
/// strings are shared. Cheap to clone; one [`Interner`] may serve all kinds.
#[derive(Debug, Clone, Default)]
pub struct DecodeContext {
    /// Names of the labels and annotations that somebody reads.
    pub keep: Keep,
    /// Where strings that repeat are shared.
    pub interner: Interner,
}

/// Names of the labels and annotations that somebody reads; all others are skipped.
///
/// Fixed for the life of an informer: needing more means listing again.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    labels: Arc<[Arc<str>]>,
    annotations: Arc<[Arc<str>]>,
}

impl Keep {
    /// Keeps neither labels nor annotations.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Keeps these labels.
    #[must_use]
    pub fn labels<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.labels = sorted(names);
        self
    }

    /// Keeps these annotations.
    #[must_use]
    pub fn annotations<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.annotations = sorted(names);
        self
    }

    /// Keeps what either keeps: of what several components read.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            labels: sorted(self.labels.iter().chain(&*other.labels)),
            annotations: sorted(self.annotations.iter().chain(&*other.annotations)),
        }
    }

    /// The labels to keep, sorted.
    pub fn label_names(&self) -> &[Arc<str>] {
        &self.labels
    }

    /// The annotations to keep, sorted.
    pub fn annotation_names(&self) -> &[Arc<str>] {
        &self.annotations
    }
}

fn sorted<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Arc<[Arc<str>]> {
    let mut names: Vec<Arc<str>> = names.into_iter().map(|name| name.as_ref().into()).collect();
    names.sort();
    names.dedup();
    names.into()
}

/// Equal strings, stored once: namespaces, nodes, finalizers, owners.
///
/// It cannot leak: strings that nobody else holds are swept out whenever the table has doubled
/// since the last sweep, so that it never holds more than twice what is alive (plus a floor).
#[derive(Debug, Clone, Default)]
pub struct Interner(Arc<Mutex<Strings>>);

#[derive(Debug, Default)]
struct Strings {
    table: HashTable<Arc<str>>,
    hasher: DefaultHashBuilder,
    sweep_at: usize,
}

/// Below this many strings sweeping is not worth it.
const SWEEP_FLOOR: usize = 1024;

impl Interner {
    /// The shared string equal to `text`.
    pub fn intern(&self, text: &str) -> Arc<str> {
        let mut strings = self.0.lock();
        let hash = strings.hasher.hash_one(text);
        if let Some(found) = strings.table.find(hash, |have| **have == *text) {
            return Arc::clone(found);
        }
        strings.sweep_if_grown();
        let shared: Arc<str> = text.into();
        let Strings { table, hasher, .. } = &mut *strings;
        table.insert_unique(hash, Arc::clone(&shared), |have| hasher.hash_one(&**have));
        shared
    }

    /// How many strings are held.
    pub fn len(&self) -> usize {
        self.0.lock().table.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Strings {
    fn sweep_if_grown(&mut self) {
        if self.table.len() < self.sweep_at.max(SWEEP_FLOOR) {
            return;
        }
        self.table.retain(|have| Arc::strong_count(have) > 1);
        self.sweep_at = self.table.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one() {
        let interner = Interner::default();
        let same = interner.clone();
        assert!(Arc::ptr_eq(&interner.intern("a"), &same.intern("a")));
        assert_eq!(interner.len(), 1);
    }

    #[test]
    fn strings_that_nobody_holds_go() {
        let interner = Interner::default();
        let held = interner.intern("held");
        for i in 0..100_000 {
            interner.intern(&format!("passing-{i}"));
        }
        assert!(interner.len() <= SWEEP_FLOOR + 1, "{}", interner.len());
        assert!(Arc::ptr_eq(&held, &interner.intern("held")));
    }

    #[test]
    fn what_either_keeps_is_kept_once() {
        let one = Keep::nothing().labels(["b", "a"]).annotations(["x"]);
        let both = one.and(&Keep::nothing().labels(["c", "b"]));
        assert_eq!(both.label_names(), ["a", "b", "c"].map(Arc::from));
        assert_eq!(both.annotation_names(), [Arc::from("x")]);
    }

    #[test]
    fn names_are_sorted_and_single() {
        let keep = Keep::nothing().labels(["b", "a", "b"]);
        assert_eq!(keep.label_names(), [Arc::from("a"), Arc::from("b")]);
        assert!(keep.annotation_names().is_empty());
    }
}
