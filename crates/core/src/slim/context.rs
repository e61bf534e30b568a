use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;

use crate::object::OwnerReference;

/// What a decoder needs besides the bytes: which labels and annotations to keep, and where equal
/// strings are shared. Cheap to clone; one [`Interner`] may serve all kinds. The example of
/// [informers](crate::informer) keeps one label.
#[derive(Debug, Clone, Default)]
pub struct DecodeContext {
    /// Names of the labels and annotations that are read.
    pub keep: Keep,
    /// Where repeated strings are shared.
    pub interner: Interner,
}

impl From<Keep> for DecodeContext {
    fn from(keep: Keep) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }
}

impl DecodeContext {
    /// The same, with all finalizers of every object: for an object that is not stored.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self {
            keep: self.keep.clone().whole(),
            interner: self.interner.clone(),
        }
    }
}

/// Names of the labels and annotations that are read; all others are skipped.
///
/// Fixed for the lifetime of an informer: more names require a new list.
///
/// ```
/// use belayer_core::Keep;
///
/// let keep = Keep::nothing().labels(["app"]).annotations(["note"]);
/// assert_eq!(keep.label_names().len(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Keep {
    labels: Arc<[Arc<str>]>,
    annotations: Arc<[Arc<str>]>,
    created_by: Option<CreatedBy>,
    /// `None`: all finalizers are kept, however many.
    finalizers: Option<Arc<[Arc<str>]>>,
}

/// Annotations that are kept only if this field manager created the object.
#[derive(Debug, Clone)]
struct CreatedBy {
    manager: Arc<str>,
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

    /// Keeps these annotations. A value of more than 1,024 bytes counts as absent.
    #[must_use]
    pub fn annotations<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.annotations = sorted(names);
        self
    }

    /// Keeps these annotations as well, but only of objects that `manager` created: a field manager of that name wrote a
    /// field of the spec, or the object has no `managedFields`. Users copy annotations with manifests and backups.
    ///
    /// ```
    /// use belayer_core::Keep;
    ///
    /// let keep = Keep::nothing().annotations_if_created_by("my-operator", ["my-operator/parent"]);
    /// assert_eq!(keep.annotation_names().len(), 1);
    /// ```
    #[must_use]
    pub fn annotations_if_created_by<N: AsRef<str>>(
        mut self,
        manager: &str,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        let annotations = sorted(names);
        self.annotations = sorted(self.annotations.iter().chain(&*annotations));
        self.created_by = Some(CreatedBy {
            manager: manager.into(),
            annotations,
        });
        self
    }

    /// The field manager and the annotations of [`Keep::annotations_if_created_by`].
    pub(super) fn conditional(&self) -> Option<(&str, &[Arc<str>])> {
        let created_by = self.created_by.as_ref()?;
        Some((&created_by.manager, &created_by.annotations))
    }

    /// Keeps these finalizers of an object that has an unusual number of finalizers, and for the others an entry that
    /// differs whenever one of them does. Of all other objects, all finalizers are kept.
    ///
    /// For informers only: the patch that adds or removes a finalizer names all that stay, so it needs an object of
    /// which [`ObjectMeta::is_shortened`](super::ObjectMeta::is_shortened) is false.
    #[must_use]
    pub fn finalizers<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.finalizers = Some(sorted(names));
        self
    }

    /// The same, with all finalizers of every object.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.finalizers = None;
        self
    }

    /// Keeps what either of them keeps, for several components. At most one of them may have
    /// [`Keep::annotations_if_created_by`].
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let finalizers = match (&self.finalizers, &other.finalizers) {
            (Some(one), Some(other)) => Some(sorted(one.iter().chain(&**other))),
            (only, None) | (None, only) => only.clone(),
        };
        Self {
            finalizers,
            created_by: self.created_by.clone().or_else(|| other.created_by.clone()),
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

    /// The finalizers to keep of an object that has very many, sorted; `None` if all are kept.
    pub fn finalizer_names(&self) -> Option<&[Arc<str>]> {
        self.finalizers.as_deref()
    }
}

fn sorted<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Arc<[Arc<str>]> {
    let mut names: Vec<Arc<str>> = names.into_iter().map(|name| name.as_ref().into()).collect();
    names.sort();
    names.dedup();
    names.into()
}

/// Stores equal values once: namespaces, nodes and finalizers, and the owners of objects.
///
/// It does not leak: unused values are removed whenever a table has doubled since its last sweep,
/// so that it never holds more than twice the used ones (plus a minimum).
///
/// Part of a [`DecodeContext`](crate::slim::DecodeContext).
#[derive(Debug, Clone, Default)]
pub struct Interner(Arc<Mutex<Tables>>);

#[derive(Debug, Default)]
struct Tables {
    strings: Shared<str>,
    owners: Shared<OwnerReference>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Shared<T: ?Sized> {
    table: HashTable<Arc<T>>,
    sweep_at: usize,
}

/// Tables with fewer entries are not swept.
const SWEEP_FLOOR: usize = 1024;

impl Interner {
    /// The shared string equal to `text`.
    pub fn intern(&self, text: &str) -> Arc<str> {
        let Tables {
            strings, hasher, ..
        } = &mut *self.0.lock();
        strings.share(hasher, text, || text.into())
    }

    /// The shared owner equal to `owner`.
    pub fn intern_owner(&self, owner: OwnerReference) -> Arc<OwnerReference> {
        let Tables { owners, hasher, .. } = &mut *self.0.lock();
        owners.share(hasher, &owner, || Arc::new(owner.clone()))
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.0.lock().strings.table.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            sweep_at: SWEEP_FLOOR,
        }
    }
}

impl<T: Eq + Hash + ?Sized> Shared<T> {
    fn share(
        &mut self,
        hasher: &DefaultHashBuilder,
        wanted: &T,
        make: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        let hash = hasher.hash_one(wanted);
        if let Some(found) = self.table.find(hash, |have| **have == *wanted) {
            return Arc::clone(found);
        }
        self.sweep_if_grown();
        let made = make();
        self.table
            .insert_unique(hash, Arc::clone(&made), |have| hasher.hash_one(&**have));
        made
    }

    fn sweep_if_grown(&mut self) {
        if self.table.len() < self.sweep_at {
            return;
        }
        self.table.retain(|have| Arc::strong_count(have) > 1);
        self.sweep_at = SWEEP_FLOOR.max(self.table.len() * 2);
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
    fn unused_strings_are_removed() {
        let interner = Interner::default();
        let held = interner.intern("held");
        for i in 0..100_000 {
            interner.intern(&format!("passing-{i}"));
        }
        assert!(interner.len() <= SWEEP_FLOOR + 1, "{}", interner.len());
        assert!(Arc::ptr_eq(&held, &interner.intern("held")));
    }

    #[test]
    fn a_combination_keeps_each_name_once() {
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
