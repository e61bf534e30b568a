//! Whether whoever owns a pod still wants it: asked live before each attempt is reserved.
//!
//! Garbage collection takes the record away with the last of its owners; but it may be slow, and until
//! then nothing must come back that goes again at once.

use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::queries::{ReadError, read};
use belayer_holds::owned::{EndedOwner, ObservedOwner, OwnerEnd};
use belayer_holds::owner::{OwnerQuery, OwnerReader};
use serde::Deserialize;
use serde_json::Value;

use super::Taking;
use crate::api::Spec;

/// An owner reference as it stands in the pod to create.
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

impl Taking<'_> {
    /// Looks at each owner, now. Returns in words which is gone or being deleted if that is its controller, or
    /// each of them; nothing if it has none, or one of them is there, or nobody can say.
    ///
    /// # Errors
    ///
    /// When a look gave no answer that would last.
    pub(super) async fn ended_owner(
        &self,
        namespace: &str,
        spec: &Spec,
    ) -> Result<Option<String>, ReadError> {
        let references = spec.pod["metadata"]["ownerReferences"].as_array();
        let mut references: Vec<Reference> = references
            .into_iter()
            .flatten()
            .filter_map(|reference| serde_json::from_value(Value::clone(reference)).ok())
            .collect();
        references.sort_by_key(|reference| !reference.controller);
        // A step that has begun does not wait for a token.
        let reader = self.it.parts.owners.with(self.context.executor);
        let mut ended = None;
        for reference in &references {
            match (
                self.owner(&reader, namespace, reference).await?,
                reference.controller,
            ) {
                (Some(why), true) => return Ok(Some(why)),
                (Some(why), false) => ended = Some(why),
                // The controller is there, or at least one owner of several.
                (None, _) => return Ok(None),
            }
        }
        Ok(ended)
    }

    /// Why an owner does not count any more; nothing if it does, or if nobody can say.
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
        } else if self.is_named(&served.resource) {
            ObjectKey::cluster(name)
        } else {
            // A user who writes a pod also chooses the owner's name: that must not make Belayer
            // read any object of the cluster (T7).
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
            // What is not known counts as there.
            OwnerEnd::Lives | OwnerEnd::Ask { .. } => None,
        })
    }

    /// Whether the configuration names a kind as one whose pods are re-created.
    fn is_named(&self, kind: &Resource) -> bool {
        let settings = self.it.parts.component.settings();
        let mut named = settings.eligibility.owners.iter();
        named.any(|have| *have.kind == *kind.kind && *have.group == *kind.group)
    }
}
