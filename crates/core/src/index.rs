//! Indexes of stores that several components look things up by.

use std::sync::Arc;

use crate::slim::Pod;

/// Pods by the UID of their controller.
pub const PODS_BY_OWNER: &str = "owner-uid";

/// Pods by namespace.
pub const PODS_BY_NAMESPACE: &str = "namespace";

/// Bound pods by the claims that they refer to, as `namespace/claim`. Only a bound pod can use a
/// claim.
pub const PODS_BY_CLAIM: &str = "claim";

/// The values of [`PODS_BY_CLAIM`].
pub fn claims_of_bound_pod(pod: &Pod) -> Vec<Arc<str>> {
    if !pod.is_bound() {
        return Vec::new();
    }
    let namespace = pod.meta.key.namespace().unwrap_or_default();
    pod.claims
        .iter()
        .chain(&pod.ephemeral_claims)
        .map(|claim| claim_value(namespace, claim))
        .collect()
}

/// Under what the pods of a claim stand in [`PODS_BY_CLAIM`].
pub fn claim_value(namespace: &str, claim: &str) -> Arc<str> {
    let mut value = String::with_capacity(namespace.len() + claim.len() + 1);
    value.push_str(namespace);
    value.push('/');
    value.push_str(claim);
    value.into()
}

/// The values of [`PODS_BY_OWNER`].
pub fn owner_of_pod(pod: &Pod) -> Option<Arc<str>> {
    let owner = pod.meta.controller.as_ref()?;
    Some(Arc::from(owner.uid.as_str()))
}

/// The values of [`PODS_BY_NAMESPACE`].
pub fn namespace_of_pod(pod: &Pod) -> Option<Arc<str>> {
    Some(Arc::clone(pod.meta.key.shared_namespace()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ObjectKey, ResourceVersion, Uid};
    use crate::slim::ObjectMeta;

    #[test]
    fn bound_pods_stand_under_all_their_claims() {
        let meta = ObjectMeta::new(
            ObjectKey::new("shop", "web-0"),
            Uid::new("p-1"),
            ResourceVersion::new(1),
        );
        let mut pod = Pod {
            claims: Box::from(["data".into()]),
            ephemeral_claims: Box::from(["web-0-scratch".into()]),
            ..Pod::new(meta)
        };
        assert!(claims_of_bound_pod(&pod).is_empty());
        pod.node_name = Some("node-1".into());
        assert_eq!(
            claims_of_bound_pod(&pod),
            ["shop/data".into(), "shop/web-0-scratch".into()]
        );
    }
}
