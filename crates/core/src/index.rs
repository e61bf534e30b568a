//! Indexes of stores that several components look things up by.

use std::sync::Arc;

use crate::slim::Pod;

/// Pods by the UID of their controller.
pub const PODS_BY_OWNER: &str = "owner-uid";

/// Pods by namespace.
pub const PODS_BY_NAMESPACE: &str = "namespace";

/// The values of [`PODS_BY_OWNER`].
pub fn owner_of_pod(pod: &Pod) -> Option<Arc<str>> {
    let owner = pod.meta.controller.as_ref()?;
    Some(Arc::from(owner.uid.as_str()))
}

/// The values of [`PODS_BY_NAMESPACE`].
pub fn namespace_of_pod(pod: &Pod) -> Option<Arc<str>> {
    Some(Arc::clone(pod.meta.key.shared_namespace()))
}
