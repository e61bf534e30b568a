//! The state of one PVC, from stores and live reads, at one point in time. Built without I/O. The
//! rules of [`row`](crate::row) read it.

use jiff::Timestamp;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::ResourceVersion;
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names::KUBERNETES_PVC_PROTECTION;

use crate::config::Mode;
use crate::owner::OwnerView;
use crate::pods_query::{PodsAnswer, PodsQuery};
use crate::uses::Users;

/// Everything that [`crate::decide`] reads. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The PVC; `None` if it is not in the cache.
    pub pvc: Option<PvcView>,
}

/// One PVC. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone)]
pub struct PvcView {
    /// Its metadata: the name by which pods refer to it, and its owner.
    pub meta: ObjectMeta,
    /// Whether Belayer adds a finalizer to PVCs, and which.
    pub mode: Mode,
    /// Whether Belayer holds it.
    pub hold: Hold,
    /// When this process first saw its deletion.
    pub deletion_seen: Option<LogicalTime>,
    /// The pods that use it, from the pod store.
    pub cached: CachedUsers,
    /// The query for the pods of its namespace.
    pub query: PodsQuery,
    /// The last live read of the namespace's pods.
    pub pods_answer: Option<LiveAnswer<PodsAnswer>>,
    /// The error of the pending live read, if it has failed so far.
    pub list_error: Option<String>,
    /// The Argo Workflow that owns it, if one does.
    pub owner: Option<OwnerView>,
}

impl PvcView {
    /// Its deletion timestamp.
    pub fn deleting(&self) -> Option<Timestamp> {
        self.meta.deletion_timestamp
    }

    /// Whether Kubernetes' own controller protects it.
    pub fn is_protected_by_kubernetes(&self) -> bool {
        self.meta.has_finalizer(KUBERNETES_PVC_PROTECTION)
    }
}

/// Whether Belayer holds a PVC. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The configured finalizer is present.
    Present,
    /// Only a finalizer of Belayer from an earlier configuration is present.
    Former,
    /// No finalizer of Belayer is present.
    Missing,
}

impl Hold {
    /// Whether a finalizer of Belayer is present.
    pub fn keeps(self) -> bool {
        self != Self::Missing
    }
}

/// The users of a PVC, from the pod store. The rules of [`row`](crate::row) read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedUsers {
    /// The store is not synced, or it shows no user and could not decode some pod. Never treated as unused.
    Unknown,
    /// The index's content.
    Known {
        /// The pods.
        users: Users,
        /// The store's version before the index was read.
        as_of: ResourceVersion,
    },
}
