//! How much of an object is kept in memory (T3).
//!
//! Whoever may write an object decides how large its texts and lists are, up to 1.5 MB. What is kept of them is limited
//! here, for both wire formats, so that the memory that an object takes is limited too. A limit is larger than
//! anything that a working cluster contains, and a text or list beyond it never proves anything.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{DecodeContext, Interner};
use crate::object::path::LONGEST_NAME;

type Names = Box<[Arc<str>]>;

/// The longest name of a PVC or a node, in bytes.
const NAME: usize = 253;

/// The longest name of a container, in bytes.
const CONTAINER_NAME: usize = 63;

/// The longest value of a label or annotation, in bytes. A longer one counts as absent.
pub(super) const VALUE: usize = 1024;

/// The longest message, in bytes. The rest is cut off.
const MESSAGE: usize = 1024;

/// How many bytes the names of a pod's PVCs may take: about a hundred names.
const PVCS: usize = 8 << 10;

/// How many bytes the finalizers of an object may take: about forty names.
const FINALIZERS: usize = 2 << 10;

/// How many containers of a pod that is being deleted are kept, and how many members of a container set.
pub(super) const CONTAINERS: usize = 256;

/// What a name takes in addition to its text.
const PER_NAME: usize = size_of::<(Arc<str>, Arc<str>)>();

/// Stands for a name that no object can have, because it is too long.
pub(super) const TOO_LONG: &str = "%too-long%";

/// The only entry of a pod's PVCs if it has too many: it may use any of its namespace.
pub const ANY_PVC: &str = "%any%";

/// The name of the container that stands for all that are not kept.
pub(super) const OTHER_CONTAINERS: &str = "%others%";

/// The beginning of the entry that stands for finalizers that are not kept. No finalizer begins so.
const OTHER_FINALIZERS: &str = "%others";

/// Whether this entry of a list of finalizers stands for others.
pub(super) fn stands_for_finalizers(name: &str) -> bool {
    name.starts_with(OTHER_FINALIZERS)
}

/// The name of an object in the same namespace, or a reason: kept as a name no object can have if it is too long.
pub(super) fn name(name: &str) -> &str {
    if name.len() > NAME { TOO_LONG } else { name }
}

/// The name of a container.
pub(super) fn container_name(name: &str) -> &str {
    if name.len() > CONTAINER_NAME {
        TOO_LONG
    } else {
        name
    }
}

/// A name of an object of any kind, or an `apiVersion`.
pub(super) fn any_name(name: &str) -> &str {
    if name.len() > LONGEST_NAME {
        TOO_LONG
    } else {
        name
    }
}

/// The first part of a message.
pub(super) fn message(text: &str) -> &str {
    &text[..text.floor_char_boundary(MESSAGE)]
}

/// The names of a pod's PVCs while it is decoded.
#[derive(Default)]
pub(super) struct Pvcs {
    plain: Vec<Arc<str>>,
    ephemeral: Vec<Arc<str>>,
    bytes: usize,
}

impl Pvcs {
    /// Adds a volume of the pod `pod`: the PVC that it names, if any, and whether it is ephemeral.
    pub(super) fn add(&mut self, pod: &str, volume: &str, pvc: &str, is_ephemeral: bool) {
        if !pvc.is_empty() && self.fits(name(pvc).len()) {
            self.plain.push(name(pvc).into());
        }
        // The PVC of an ephemeral volume is named after the pod and the volume.
        if is_ephemeral && self.fits(pod.len() + 1 + volume.len()) {
            let pvc = format!("{pod}-{volume}");
            self.ephemeral.push(name(&pvc).into());
        }
    }

    fn fits(&mut self, length: usize) -> bool {
        self.bytes += length.min(LONGEST_NAME) + PER_NAME;
        self.bytes <= PVCS
    }

    /// The PVCs that the pod refers to, and those of its ephemeral volumes.
    pub(super) fn finish(self) -> (Names, Names) {
        if self.bytes > PVCS {
            return (Box::from([Arc::from(ANY_PVC)]), Box::default());
        }
        (self.plain.into(), self.ephemeral.into())
    }
}

/// The finalizers of an object while it is decoded.
pub(super) struct Finalizers<'k> {
    context: &'k DecodeContext,
    names: Vec<Arc<str>>,
    bytes: usize,
    others: Option<Others>,
}

/// Finalizers that are not kept.
#[derive(Default)]
struct Others {
    count: usize,
    /// Of all finalizers, so that every change is a difference.
    hash: DefaultHasher,
}

impl<'k> Finalizers<'k> {
    pub(super) fn new(context: &'k DecodeContext) -> Self {
        Self {
            context,
            names: Vec::new(),
            bytes: 0,
            others: None,
        }
    }

    pub(super) fn add(&mut self, name: &str) {
        self.bytes += name.len() + PER_NAME;
        if self.context.keep.finalizer_names().is_none() || self.bytes <= FINALIZERS {
            self.names.push(self.context.interner.intern(name));
            return;
        }
        if self.others.is_none() {
            self.others = Some(Others::default());
            for earlier in std::mem::take(&mut self.names) {
                self.shorten(&earlier);
            }
        }
        self.shorten(name);
    }

    /// Keeps the name only if a component reads it.
    fn shorten(&mut self, name: &str) {
        let Some(others) = &mut self.others else {
            return;
        };
        name.hash(&mut others.hash);
        let keep = self.context.keep.finalizer_names().unwrap_or_default();
        let is_kept = keep.binary_search_by(|have| (**have).cmp(name)).is_ok();
        if is_kept && !self.names.iter().any(|have| **have == *name) {
            self.names.push(self.context.interner.intern(name));
        } else {
            others.count += 1;
        }
    }

    pub(super) fn finish(mut self) -> Box<[Arc<str>]> {
        if let Some(Others { count, hash }) = self.others {
            let mut entry = String::from(OTHER_FINALIZERS);
            let _ = write!(entry, ": {count}, {:016x}", hash.finish());
            self.names.push(entry.into());
        }
        self.names.into()
    }
}

/// A text that a rule compares, such as a reason.
pub(super) fn some(text: &str, interner: &Interner) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| interner.intern(name(text)))
}
