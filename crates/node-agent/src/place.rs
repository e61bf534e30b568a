//! The keys under which the work for pods stands: a pod's name, or beside it.

use std::sync::Arc;

use belayer_core::object::{ObjectKey, Uid};
use belayer_lifecycles::Identity;

/// Between the name and the UID of a pod that has lost its name. No name contains it.
const BESIDE: char = '/';

/// The pod whose lifecycle has this key, unless that is beside the name.
pub(crate) fn pod_of(key: &ObjectKey) -> Option<ObjectKey> {
    let name = key.name().split(BESIDE).next()?;
    Some(ObjectKey::new(Arc::clone(key.shared_namespace()), name))
}

/// Where work for a pod stands whose name is another pod's by now.
pub(crate) fn beside(pod: &ObjectKey, uid: &Uid) -> Identity {
    let name = format!("{}{BESIDE}{uid}", pod.name());
    let key = ObjectKey::new(Arc::clone(pod.shared_namespace()), name);
    Identity::new(key, uid.clone())
}
