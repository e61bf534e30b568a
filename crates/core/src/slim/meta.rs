use std::sync::Arc;

use jiff::Timestamp;

use super::{Keep, limits};
use crate::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};

type Pairs = Vec<(Arc<str>, Arc<str>)>;

/// The labels or annotations that a decoder keeps, sorted by name.
///
/// ```
/// use belayer_core::slim::Labels;
///
/// let labels: Labels = [("app", "web")].into_iter().collect();
/// assert_eq!(labels.get("app"), Some("web"));
/// assert_eq!(labels.get("tier"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(
    /// Most objects have none that is kept: then this is one word. Never empty.
    #[allow(clippy::box_collection, reason = "a boxed slice is two words")]
    Option<Box<Pairs>>,
);

impl Labels {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let pairs = self.0.as_ref()?;
        let found = pairs.binary_search_by(|(have, _)| (**have).cmp(name));
        found.ok().map(|found| &*pairs[found].1)
    }

    /// All pairs, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter().flat_map(|pairs| pairs.iter());
        pairs.map(|(name, value)| (&**name, &**value))
    }

    /// Removes the annotations of [`Keep::annotations_if_created_by`] if another client created the object.
    /// `is_created_by` reads the field managers; it is called only if the object has such an annotation.
    pub(super) fn of_creator(self, keep: &Keep, is_created_by: impl FnOnce(&str) -> bool) -> Self {
        let Some((manager, conditional)) = keep.conditional() else {
            return self;
        };
        let counts = |name: &str| conditional.iter().all(|other| **other != *name);
        if self.iter().all(|(name, _)| counts(name)) || is_created_by(manager) {
            return self;
        }
        self.iter().filter(|(name, _)| counts(name)).collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl<N: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs
            .into_iter()
            .map(|(n, v)| (n.into(), v.into()))
            .collect();
        pairs.sort();
        pairs.shrink_to_fit();
        Self((!pairs.is_empty()).then(|| Box::new(pairs)))
    }
}

/// The part of `metadata` that decisions read, the same for every kind.
///
/// ```
/// use belayer_core::{ObjectKey, ObjectMeta, ResourceVersion, Uid};
///
/// let key = ObjectKey::new("shop", "web-0");
/// let meta = ObjectMeta::new(key, Uid::new("u"), ResourceVersion::new(4));
/// assert!(!meta.is_deleting() && !meta.has_finalizer("example.com/keeper"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Identity.
    pub uid: Uid,
    /// Version of the last change.
    pub resource_version: ResourceVersion,
    /// `metadata.deletionTimestamp`: set when deletion is requested, never unset. [`Timestamp::MAX`] if it cannot be
    /// represented: whoever deletes a pod chooses its grace period (T9).
    pub deletion_timestamp: Option<Timestamp>,
    /// `metadata.deletionGracePeriodSeconds`, in seconds.
    pub deletion_grace_period: Option<i64>,
    /// `metadata.finalizers` in the server's order. All of them, unless [`ObjectMeta::is_shortened`].
    pub finalizers: Box<[Arc<str>]>,
    /// The owner reference with `controller: true`, if there is one. All objects of one owner share
    /// it.
    pub controller: Option<Arc<OwnerReference>>,
    /// The labels that the informer keeps.
    pub labels: Labels,
    /// The annotations that the informer keeps.
    pub annotations: Labels,
}

impl ObjectMeta {
    /// Metadata with all other fields empty: for tests and builders.
    pub fn new(key: ObjectKey, uid: Uid, resource_version: ResourceVersion) -> Self {
        Self {
            key,
            uid,
            resource_version,
            deletion_timestamp: None,
            deletion_grace_period: None,
            finalizers: Box::default(),
            controller: None,
            labels: Labels::default(),
            annotations: Labels::default(),
        }
    }

    /// Whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether the object has `finalizer`.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|have| **have == *finalizer)
    }

    /// Whether not all finalizers are kept, because the object has an unusual number of them. Then those that a
    /// component reads are here, and the last entry stands for the others.
    pub fn is_shortened(&self) -> bool {
        self.finalizers
            .last()
            .is_some_and(|last| limits::stands_for_finalizers(last))
    }

    /// The approximate size in bytes, without its own `size_of`.
    pub fn weight(&self) -> usize {
        let finalizers = self.finalizers.iter().map(|name| shared(name));
        let pairs = self.labels.iter().chain(self.annotations.iter());
        let pairs = pairs.map(|(_, value)| shared(value));
        finalizers.chain(pairs).sum()
    }

    /// Whether anything but the resourceVersion differs.
    pub fn differs(&self, older: &Self) -> bool {
        self.uid != older.uid
            || self.deletion_timestamp != older.deletion_timestamp
            || self.deletion_grace_period != older.deletion_grace_period
            || self.finalizers != older.finalizers
            || self.controller != older.controller
            || self.labels != older.labels
            || self.annotations != older.annotations
            || self.key != older.key
    }
}

/// The approximate size of a shared string in bytes, with the pointers to it.
fn shared(text: &str) -> usize {
    text.len() + size_of::<(Arc<str>, Arc<str>, usize)>()
}

crate::slim_kind! {
    /// An object of which only the metadata is read, such as a workflow that owns pods. The [module's
    /// example](crate::slim) decodes one.
    pub struct OwnerMeta {}
}

crate::slim_kind! {
    /// A namespace: whether it is being deleted, and its labels. It is a [`Slim`](crate::slim::Slim)
    /// kind; the [example of informers](crate::informer) watches another.
    pub struct Namespace {}
}

crate::slim_kind! {
    /// A PersistentVolumeClaim: whether it is being deleted, its finalizers, and the pod it was
    /// created for, which is the controller owner of the PVC of an ephemeral volume. As every
    /// [`Slim`](crate::slim::Slim) kind it is decoded with a
    /// [`DecodeContext`](crate::slim::DecodeContext).
    pub struct Pvc {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_by_name() {
        let labels: Labels = [("b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(labels.get("a"), Some("1"));
        assert_eq!(labels.get("c"), None);
        assert_eq!(labels.iter().next(), Some(("a", "1")));
    }

    #[test]
    fn a_new_version_alone_is_no_difference() {
        let old = ObjectMeta::new(
            ObjectKey::new("a", "b"),
            Uid::new("u"),
            ResourceVersion::new(1),
        );
        let new = ObjectMeta {
            resource_version: ResourceVersion::new(2),
            ..old.clone()
        };
        assert!(!new.differs(&old));
        let held = ObjectMeta {
            finalizers: Box::from([Arc::from("x/y")]),
            ..new
        };
        assert!(held.differs(&old));
    }
}
