//! Whether whoever owns a pod still wants it: asked live before each attempt is reserved.
//!
//! Garbage collection takes the record away with the last of its owners; but it may be slow, and until
//! then nothing must come back that goes again at once.

use belayer_core::executor::Class;
use belayer_core::facts::{LookError, look};
use belayer_core::http::{ErrorClass, Request};
use belayer_core::object::{ObjectKey, Resource, ResourceVersion, Uid, path};
use belayer_core::slim::ObjectMeta;
use belayer_holds::owner::{OwnerDeletion, OwnerQuery, OwnerState};
use serde::Deserialize;
use serde_json::Value;

use super::Shared;
use crate::api::Spec;

/// What the owners of a pod say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owners {
    /// It has none, or one of them is there, or nobody can say.
    Want,
    /// Its controller, or each of its owners, is gone or being deleted: which, in words.
    Ended(String),
}

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

/// What discovery says of a kind.
#[derive(Debug, Clone)]
pub(super) struct Served {
    resource: Resource,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Namespaced,
}

#[derive(Debug, Deserialize)]
struct Discovered {
    #[serde(default)]
    resources: Vec<DiscoveredKind>,
}

#[derive(Debug, Deserialize)]
struct DiscoveredKind {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

impl Shared {
    /// Looks at each owner, now.
    ///
    /// # Errors
    ///
    /// When a look gave no answer that would last.
    pub(super) async fn owners(&self, namespace: &str, spec: &Spec) -> Result<Owners, LookError> {
        let references = spec.pod["metadata"]["ownerReferences"].as_array();
        let mut references: Vec<Reference> = references
            .into_iter()
            .flatten()
            .filter_map(|reference| serde_json::from_value(Value::clone(reference)).ok())
            .collect();
        references.sort_by_key(|reference| !reference.controller);
        let mut ended = None;
        for reference in &references {
            match (
                self.owner(namespace, reference).await?,
                reference.controller,
            ) {
                (Some(why), true) => return Ok(Owners::Ended(why)),
                (Some(why), false) => ended = Some(why),
                // The controller is there, or at least one owner of several.
                (None, _) => return Ok(Owners::Want),
            }
        }
        Ok(ended.map_or(Owners::Want, Owners::Ended))
    }

    /// Why an owner does not count any more; nothing if it does, or if nobody can say.
    async fn owner(
        &self,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<String>, LookError> {
        let Some(served) = self.served(reference).await? else {
            return Ok(None);
        };
        let key = match served.scope {
            // A user who writes a pod also chooses the owner's name: that must not make Belayer
            // read any object of the cluster (T7).
            Scope::Cluster if !self.is_named(&served.resource) => return Ok(None),
            Scope::Cluster => ObjectKey::cluster(reference.name.as_str()),
            Scope::Namespaced => ObjectKey::new(namespace, reference.name.as_str()),
        };
        let uid = Uid::new(reference.uid.as_str());
        let owner = ObjectMeta::new(key, uid.clone(), ResourceVersion::new(0));
        let question = OwnerQuery::about(served.resource, &owner);
        let fact = look(&*self.parts.owners, &question).await?;
        let named = format!("{} {}", reference.kind, reference.name);
        Ok(match fact.answer() {
            OwnerState::Gone(proof) => Some(format!("its owner {named} is gone: {proof}")),
            OwnerState::Present(meta) if OwnerDeletion::prove(meta, &uid).is_some() => {
                Some(format!("its owner {named} is being deleted"))
            }
            OwnerState::Present(_) => None,
            OwnerState::Unknown(why) => {
                tracing::debug!(owner = %named, why, "whether an owner is there is not known; it counts as there");
                None
            }
        })
    }

    /// Whether the configuration names a kind as one whose pods are re-created.
    fn is_named(&self, kind: &Resource) -> bool {
        let named = &self.parts.component.settings().eligibility.owners;
        named
            .iter()
            .any(|have| *have.kind == *kind.kind && *have.group == *kind.group)
    }

    /// The plural of an owner's kind, from discovery; nothing if it is not served.
    async fn served(&self, reference: &Reference) -> Result<Option<Served>, LookError> {
        let named = (reference.api_version.clone(), reference.kind.clone());
        if let Some(served) = self.kinds.lock().get(&named) {
            return Ok(Some(served.clone()));
        }
        let (group, version) = match reference.api_version.split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", reference.api_version.as_str()),
        };
        let path = path::of_version(group, version);
        let answer = match self
            .executor()
            .read(&Request::get(path), Class::Evidence)
            .await
        {
            Ok(answer) => answer,
            Err(error) => {
                return match error.class() {
                    ErrorClass::NotFound | ErrorClass::NotServed | ErrorClass::Forbidden => {
                        Ok(None)
                    }
                    _ => Err(LookError::from(&error)),
                };
            }
        };
        let discovered: Discovered = answer.json().map_err(|error| LookError::from(&error))?;
        let found = discovered
            .resources
            .iter()
            .find(|served| served.kind == reference.kind && !served.name.contains('/'));
        let served = found.map(|kind| Served {
            resource: Resource::new(group, version, &kind.kind, &kind.name),
            scope: if kind.namespaced {
                Scope::Namespaced
            } else {
                Scope::Cluster
            },
        });
        if let Some(served) = &served {
            self.kinds.lock().insert(named, served.clone());
        }
        Ok(served)
    }
}
