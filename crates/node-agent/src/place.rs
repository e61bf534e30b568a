//! Keys of the lifecycles: the pod's name, or its name and UID.

use std::sync::Arc;

use belayer_core::object::{ObjectKey, Uid};
use belayer_lifecycles::Identity;

/// Separator between name and UID. Pod names cannot contain it.
const SEPARATOR: char = '/';

/// The pod that a lifecycle with this key belongs to.
pub(crate) fn pod_of(key: &ObjectKey) -> Option<ObjectKey> {
    let name = key.name().split(SEPARATOR).next()?;
    Some(ObjectKey::new(Arc::clone(key.shared_namespace()), name))
}

/// The identity for an older pod whose name belongs to another pod now.
pub(crate) fn by_uid(pod: &ObjectKey, uid: &Uid) -> Identity {
    let name = format!("{}{SEPARATOR}{uid}", pod.name());
    let key = ObjectKey::new(Arc::clone(pod.shared_namespace()), name);
    Identity::new(key, uid.clone())
}
