//! The owners of a pod, read live before each attempt is reserved.
//!
//! Garbage collection deletes the record after its last owner, but it may be slow. Until then Belayer must not create a
//! pod that would be deleted at once.

use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::queries::{ReadError, read};
use belayer_holds::owned::{EndedOwner, ObservedOwner, OwnerEnd};
use belayer_holds::owner::{OwnerQuery, OwnerReader};
use serde::Deserialize;
use serde_json::Value;

use super::Execution;

/// An owner reference of the pod to create.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl Execution<'_> {
    /// Reads the owners of the pod to create. Returns the reason not to re-create the pod: its controller is being deleted
    /// or gone, or all of its owners are. `None` if it has no owner, or one that exists or cannot be determined.
    ///
    /// # Errors
    ///
    /// If a read failed.
    pub(super) async fn ended_owner(
        &self,
        namespace: &str,
        pod: &Value,
    ) -> Result<Option<String>, ReadError> {
        let references = pod["metadata"]["ownerReferences"].as_array();
        let mut references: Vec<Reference> = references
            .into_iter()
            .flatten()
            .filter_map(|reference| serde_json::from_value(Value::clone(reference)).ok())
            .collect();
        references.sort_by_key(|reference| !reference.controller);
        // A step in execution does not wait for the rate limit of queries.
        let reader = self.it.parts.owners.with(self.context.executor);
        let mut ended = None;
        for reference in &references {
            match (
                self.owner(&reader, namespace, reference).await?,
                reference.controller,
            ) {
                (Some(why), true) => return Ok(Some(why)),
                (Some(why), false) => ended = Some(why),
                // The controller exists, or at least one owner of several.
                (None, _) => return Ok(None),
            }
        }
        Ok(ended)
    }

    /// Why an owner does not count; `None` if it exists or cannot be determined.
    async fn owner(
        &self,
        reader: &OwnerReader,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<String>, ReadError> {
        let Reference {
            api_version, kind, ..
        } = reference;
        let Some(served) = reader.served(api_version, kind).await? else {
            return Ok(None);
        };
        let name = reference.name.as_str();
        let key = if served.namespaced {
            ObjectKey::new(namespace, name)
        } else if self.is_listed(&served.resource) {
            ObjectKey::cluster(name)
        } else {
            // The user who created the pod chose this name. It must not make Belayer read any cluster-scoped object
            // (T7).
            return Ok(None);
        };
        let query = OwnerQuery::at(served.resource, key, Uid::new(reference.uid.as_str()));
        let owner = ObservedOwner {
            answer: Some(read(reader, &query).await?),
            query,
            cached: None,
        };
        Ok(match owner.end() {
            OwnerEnd::Ended(EndedOwner::Gone(proof)) => {
                Some(format!("its owner {kind} {name} is gone: {proof}"))
            }
            OwnerEnd::Ended(EndedOwner::Deleting(_)) => {
                Some(format!("its owner {kind} {name} is being deleted"))
            }
            // An unknown owner counts as existing.
            OwnerEnd::Lives | OwnerEnd::Ask { .. } => None,
        })
    }

    /// Whether `owners` of the configuration lists the kind.
    fn is_listed(&self, kind: &Resource) -> bool {
        let settings = self.it.parts.component.settings();
        let mut listed = settings.eligibility.owners.iter();
        listed.any(|have| *have.kind == *kind.kind && *have.group == *kind.group)
    }
}
