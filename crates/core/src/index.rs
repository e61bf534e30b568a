//! Indexes of informer stores that several components use.
//!
//! ```
//! use belayer_core::index::pvc_value;
//!
//! // `store.by_index(PODS_BY_PVC, ...)` lists the pods that use this PVC.
//! assert_eq!(pvc_value("shop", "data"), "shop/data");
//! ```

use crate::slim::Pod;

/// Pods by the UID of their controller.
pub const PODS_BY_OWNER: &str = "owner-uid";

/// Pods by namespace.
pub const PODS_BY_NAMESPACE: &str = "namespace";

/// Bound pods by the PVCs that they refer to, as `namespace/pvc`. An unbound pod cannot use a
/// PVC. A pod that [may use any](Pod::may_use_any_pvc) is listed under [`ANY_PVC`].
///
/// [`ANY_PVC`]: crate::slim::ANY_PVC
pub const PODS_BY_PVC: &str = "claim";

/// Emits the values of [`PODS_BY_PVC`]. The values are those of
/// [`pvc_value`], as in the [example](self).
pub fn pvcs_of_bound_pod(pod: &Pod, emit: &mut dyn FnMut(&str)) {
    if !pod.is_bound() {
        return;
    }
    let namespace = pod.meta.key.namespace().unwrap_or_default();
    for pvc in pod.pvcs.iter().chain(&pod.ephemeral_pvcs) {
        emit(&pvc_value(namespace, pvc));
    }
}

/// The value under which [`PODS_BY_PVC`] lists the pods of a PVC. The [module's example](self)
/// has a value.
pub fn pvc_value(namespace: &str, pvc: &str) -> String {
    let mut value = String::with_capacity(namespace.len() + pvc.len() + 1);
    value.push_str(namespace);
    value.push('/');
    value.push_str(pvc);
    value
}

/// Emits the values of [`PODS_BY_OWNER`]. Pass it to
/// [`InformerBuilder::index`](crate::informer::InformerBuilder::index), as the closure in the
/// [example of an index](crate::informer).
pub fn owner_of_pod(pod: &Pod, emit: &mut dyn FnMut(&str)) {
    if let Some(owner) = &pod.meta.controller {
        emit(owner.uid.as_str());
    }
}

/// Emits the values of [`PODS_BY_NAMESPACE`]. Pass it to
/// [`InformerBuilder::index`](crate::informer::InformerBuilder::index), as the closure in the
/// [example of an index](crate::informer).
pub fn namespace_of_pod(pod: &Pod, emit: &mut dyn FnMut(&str)) {
    emit(pod.meta.key.shared_namespace());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ObjectKey, ResourceVersion, Uid};
    use crate::slim::ObjectMeta;

    #[test]
    fn bound_pods_are_indexed_by_all_their_pvcs() {
        let meta = ObjectMeta::new(
            ObjectKey::new("shop", "web-0"),
            Uid::new("p-1"),
            ResourceVersion::new(1),
        );
        let mut pod = Pod {
            pvcs: Box::from(["data".into()]),
            ephemeral_pvcs: Box::from(["web-0-scratch".into()]),
            ..Pod::new(meta)
        };
        let values = |pod: &Pod| {
            let mut values = Vec::new();
            pvcs_of_bound_pod(pod, &mut |value| values.push(value.to_owned()));
            values
        };
        assert!(values(&pod).is_empty());
        pod.node_name = Some("node-1".into());
        assert_eq!(values(&pod), ["shop/data", "shop/web-0-scratch"]);
    }
}
