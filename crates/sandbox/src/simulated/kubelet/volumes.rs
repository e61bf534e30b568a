//! PVCs as a kubelet sees them: a pod whose PVC is missing or being deleted must not start.
//!
//! Such a pod is not rejected: it stays `Pending` with its containers being created, until the PVC can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::simulated::driver::Change;
use crate::simulated::object;

/// Namespace and name.
type PvcKey = (String, String);

/// Whether a pod's volumes can be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mount {
    Ready,
    /// Not before this PVC changes; with the reason in a kubelet's text.
    Waits {
        volume: String,
        why: String,
    },
}

/// The existing PVCs, and the pods that wait for one.
#[derive(Debug, Default)]
pub(super) struct Pvcs {
    /// Whether each PVC is being deleted.
    deleting: BTreeMap<PvcKey, bool>,
    waiting: BTreeMap<PvcKey, BTreeSet<Arc<str>>>,
}

impl Pvcs {
    /// Updates a PVC; returns the pods that waited for it.
    pub(super) fn observe(&mut self, change: &Change) -> BTreeSet<Arc<str>> {
        let (Change::Upserted(pvc) | Change::Removed(pvc)) = change;
        let namespace = object::namespace(pvc).unwrap_or_default();
        let key = (namespace.to_owned(), object::name(pvc).to_owned());
        match change {
            Change::Upserted(pvc) => {
                self.deleting.insert(key.clone(), object::is_deleting(pvc));
            }
            Change::Removed(_) => {
                self.deleting.remove(&key);
            }
        }
        self.waiting.remove(&key).unwrap_or_default()
    }

    /// Checks a pod's PVCs; a pod that has to wait is returned later by [`Pvcs::observe`].
    pub(super) fn mount(&mut self, uid: &Arc<str>, pod: &Value) -> Mount {
        for volume in object::items(pod, "/spec/volumes") {
            let Some(pvc) = object::text(volume, "/persistentVolumeClaim/claimName") else {
                continue;
            };
            let namespace = object::namespace(pod).unwrap_or_default();
            let key = (namespace.to_owned(), pvc.to_owned());
            let why = match self.deleting.get(&key) {
                Some(false) => continue,
                Some(true) => "PVC is being deleted".to_owned(),
                None => format!(
                    "error processing PVC {namespace}/{pvc}: failed to fetch PVC from API server: \
                     persistentvolumeclaims \"{pvc}\" not found"
                ),
            };
            self.waiting.entry(key).or_default().insert(Arc::clone(uid));
            let volume = object::text(volume, "/name").unwrap_or_default().to_owned();
            return Mount::Waits { volume, why };
        }
        Mount::Ready
    }

    /// Removes a waiting pod.
    pub(super) fn remove(&mut self, uid: &Arc<str>) {
        self.waiting.retain(|_, waiting| {
            waiting.remove(uid);
            !waiting.is_empty()
        });
    }
}
