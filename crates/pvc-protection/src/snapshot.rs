//! What stores and looks say about one claim at one moment. Built without I/O.

use jiff::Timestamp;

use belayer_core::facts::LiveAnswer;
use belayer_core::moment::LogicalTime;
use belayer_core::object::ResourceVersion;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names::KUBERNETES_PVC_PROTECTION;

use crate::config::Mode;
use crate::look::{PodsLook, PodsQuery};
use crate::owner::OwnerView;
use crate::uses::Users;

/// Everything that [`crate::decide`] reads.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The claim; `None` if it is not in the cache.
    pub claim: Option<ClaimView>,
}

/// One claim.
#[derive(Debug, Clone)]
pub struct ClaimView {
    /// Its metadata: the name that pods refer to it by, and the pod that it was made for.
    pub meta: ObjectMeta,
    /// Whether PVCs get a finalizer, and which.
    pub mode: Mode,
    /// Whether we hold it.
    pub hold: Hold,
    /// When this process first saw its deletion.
    pub deletion_seen: Option<LogicalTime>,
    /// The pods that use it, by the pod store.
    pub cached: CachedUsers,
    /// What to ask about its namespace.
    pub question: PodsQuery,
    /// As the last live look at its namespace's pods saw them.
    pub look: Option<LiveAnswer<PodsLook>>,
    /// Why the look that is under way fails, if it does.
    pub look_error: Option<String>,
    /// The Argo Workflow that owns it, if one does.
    pub owner: Option<OwnerView>,
}

impl ClaimView {
    /// When its deletion was asked for.
    pub fn deleting(&self) -> Option<Timestamp> {
        self.meta.deletion_timestamp
    }

    /// Whether Kubernetes' own controller protects it.
    pub fn is_protected_by_kubernetes(&self) -> bool {
        self.meta.has_finalizer(KUBERNETES_PVC_PROTECTION)
    }
}

/// Whether we hold a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The hold is on it.
    Present,
    /// Not the hold, but one that we put on before the configuration named another.
    Former,
    /// None of ours is.
    Missing,
}

impl Hold {
    /// Whether anything of ours keeps the claim.
    pub fn keeps(self) -> bool {
        self != Self::Missing
    }
}

/// The users of a claim by the pod store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedUsers {
    /// The store is not complete, or cannot read some pod and shows no user. Never taken for none.
    Unknown,
    /// What the index shows.
    Known {
        /// The pods.
        users: Users,
        /// The version that the store had reached before the index was read.
        as_of: ResourceVersion,
    },
}
