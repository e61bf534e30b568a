//! Admission of writes: the stored policies and webhooks are asked before a write is stored.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::patch::{read_patched, unfit};
use super::{State, at_version};
use crate::address::{Gvr, ObjectKey, Subresource};
use crate::attempt::{Attempt, Operation};
use crate::error::ApiError;
use crate::kinds::{ResourceInfo, scale};
use crate::meta;

/// An object as the request has it: at its version, or as the `Scale` that it changes.
fn shown<'a>(
    info: &ResourceInfo,
    gvr: &Gvr,
    subresource: Subresource,
    object: &'a Value,
) -> Cow<'a, Value> {
    if subresource == Subresource::Scale {
        return Cow::Owned(scale::of(info, &gvr.version, object));
    }
    if info.is_at(&gvr.version, object) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    object["apiVersion"] = json!(gvr.api_version());
    Cow::Owned(object)
}

fn type_of(object: &Value) -> (String, String) {
    let text = |field| meta::text(object, &[field]).to_owned();
    (text("apiVersion"), text("kind"))
}

impl State {
    /// The object as mutating policies and webhooks change it; `None` if they do not.
    pub(super) fn mutated(
        &mut self,
        (info, gvr): (&ResourceInfo, &Gvr),
        namespace: &str,
        object: &Value,
        old: Option<(&Arc<Value>, Subresource)>,
        dry_run: bool,
    ) -> Result<Option<Value>, ApiError> {
        if !self.has_mutating(info) {
            return Ok(None);
        }
        let subresource = old.map_or(Subresource::None, |(_, subresource)| subresource);
        let old = old.map(|(old, _)| shown(info, gvr, subresource, old));
        let stored = object;
        let object = shown(info, gvr, subresource, object);
        let kind = type_of(&object);
        let attempt = Attempt {
            info,
            gvr,
            kind: (&kind.0, &kind.1),
            namespace,
            name: meta::name(&object),
            subresource: subresource.as_str(),
            operation: match old {
                Some(_) => Operation::Update,
                None => Operation::Create,
            },
            object: Some(&object),
            old: old.as_deref(),
            dry_run,
        };
        let Some(mut changed) = self.mutate(&attempt)? else {
            return Ok(None);
        };
        if subresource == Subresource::Scale {
            let mut scaled = stored.clone();
            let replicas = scale::replicas(&changed);
            scale::set(info, &gvr.version, &mut scaled, replicas);
            return Ok(Some(scaled));
        }
        read_patched(info, gvr, &mut changed).map_err(|why| unfit(&changed, &why))?;
        if gvr.version != info.storage_version && old.is_some() {
            changed["apiVersion"] = json!(info.api_version(&info.storage_version));
        }
        Ok(Some(changed))
    }

    /// Asks validating policies and webhooks about a new or changed object; returns their warnings.
    pub(super) fn validated(
        &mut self,
        (info, gvr): (&ResourceInfo, &Gvr),
        namespace: &str,
        name: &str,
        object: &Value,
        old: Option<(&Arc<Value>, Subresource)>,
        dry_run: bool,
    ) -> Result<Vec<String>, ApiError> {
        if !self.has_validating(info) {
            return Ok(Vec::new());
        }
        let subresource = old.map_or(Subresource::None, |(_, subresource)| subresource);
        let old = old.map(|(old, _)| shown(info, gvr, subresource, old));
        let object = shown(info, gvr, subresource, object);
        let kind = type_of(&object);
        self.validate(&Attempt {
            info,
            gvr,
            kind: (&kind.0, &kind.1),
            namespace,
            name,
            subresource: subresource.as_str(),
            operation: match old {
                Some(_) => Operation::Update,
                None => Operation::Create,
            },
            object: Some(&object),
            old: old.as_deref(),
            dry_run,
        })
    }

    /// Asks policies and webhooks about a new object of a pod's subresource; returns it as they change it, and warnings.
    pub(super) fn admitted(
        &mut self,
        (info, subresource): (&ResourceInfo, &'static str),
        key: &ObjectKey,
        object: Value,
        dry_run: bool,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let kind = type_of(&object);
        let attempt = Attempt {
            info,
            gvr: &Gvr::PODS,
            kind: (&kind.0, &kind.1),
            namespace: &key.namespace,
            name: &key.name,
            subresource,
            operation: Operation::Create,
            object: Some(&object),
            old: None,
            dry_run,
        };
        let changed = self.mutate(&attempt)?;
        let object = changed.as_ref().unwrap_or(&object);
        let attempt = Attempt {
            object: Some(object),
            ..attempt
        };
        let warnings = self.validate(&attempt)?;
        Ok((object.clone(), warnings))
    }

    /// Asks policies and webhooks about a deletion; returns their warnings.
    pub(super) fn deletable(
        &mut self,
        info: &ResourceInfo,
        key: &ObjectKey,
        old: &Arc<Value>,
        dry_run: bool,
    ) -> Result<Vec<String>, ApiError> {
        if !(self.has_validating(info) || self.has_mutating(info)) {
            return Ok(Vec::new());
        }
        let gvr = info.storage_gvr();
        let old = at_version(info, &gvr.version, Arc::clone(old));
        let attempt = Attempt {
            info,
            gvr: &gvr,
            kind: (&gvr.api_version(), &info.kind),
            namespace: &key.namespace,
            name: &key.name,
            subresource: "",
            operation: Operation::Delete,
            object: None,
            old: Some(&old),
            dry_run,
        };
        // Mutating webhooks can refuse it, too.
        self.mutate(&attempt)?;
        self.validate(&attempt)
    }
}

#[cfg(feature = "cel")]
mod with_cel {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{Attempt, State};
    use crate::address::{Gvr, ObjectKey};
    use crate::admission::{Admission, Policies, Store, conversation};
    use crate::attempt::GROUP;
    use crate::cluster::{Patch, patch_any};
    use crate::error::ApiError;
    use crate::kinds::{Registry, ResourceInfo};
    use crate::meta;

    impl Store for State {
        fn kinds(&self) -> &Registry {
            &self.kinds
        }

        fn object(&self, info: &ResourceInfo, key: &ObjectKey) -> Option<Arc<Value>> {
            self.get(info, key).cloned()
        }

        fn objects(&self, info: &ResourceInfo) -> Vec<Arc<Value>> {
            let table = self.table(info).into_iter().flatten();
            table.map(|(_, object)| Arc::clone(object)).collect()
        }

        fn patch(&self, object: &mut Value, patch: Value) -> Result<(), String> {
            patch_any(object, &Patch::Json(patch)).map_err(|error| error.message)
        }
    }

    impl State {
        fn policies(&mut self, info: &ResourceInfo) -> Option<Arc<Policies>> {
            // Writes of the server itself are not asked about.
            if self.author.is_none() || info.group == GROUP {
                return None;
            }
            Some(self.compiled())
        }

        /// The stored policies.
        pub(crate) fn compiled(&mut self) -> Arc<Policies> {
            if let Some(policies) = &self.policies {
                return Arc::clone(policies);
            }
            let policies = Policies::new(|resource| {
                let gvr = Gvr::new(GROUP, "v1", resource.to_owned());
                let table = self.kinds.find(&gvr).and_then(|info| self.table(info));
                table.into_iter().flat_map(|table| table.values()).collect()
            });
            let policies = Arc::new(policies);
            self.policies = Some(Arc::clone(&policies));
            policies
        }

        pub(in crate::cluster) fn has_mutating(&mut self, info: &ResourceInfo) -> bool {
            let policies = self.policies(info);
            policies.is_some_and(|policies| policies.has_mutating())
        }

        /// Whether the write stopped for a question to a webhook: it will be tried again.
        pub(in crate::cluster) fn is_waiting() -> bool {
            conversation::is_waiting()
        }

        /// Gives a new object the identity that it had when the request ran before.
        pub(in crate::cluster) fn identify(object: &mut Value) {
            let mut identity = json!({});
            for field in ["name", "uid", "creationTimestamp"] {
                identity[field] = object["metadata"][field].clone();
            }
            let kept = conversation::identity(identity);
            for (field, value) in kept.as_object().into_iter().flatten() {
                if !value.is_null() {
                    meta::set(object, field, value.clone());
                }
            }
        }

        pub(super) fn has_validating(&mut self, info: &ResourceInfo) -> bool {
            let policies = self.policies(info);
            policies.is_some_and(|policies| policies.has_validating())
        }

        pub(super) fn mutate(&mut self, attempt: &Attempt<'_>) -> Result<Option<Value>, ApiError> {
            let (Some(policies), Some(author)) = (self.policies(attempt.info), &self.author) else {
                return Ok(None);
            };
            let admission = Admission::new(self, &policies, author.user());
            let changed = admission.mutate(attempt)?;
            let attempt = Attempt {
                object: changed.as_ref().or(attempt.object),
                ..*attempt
            };
            let mut warnings = Vec::new();
            let called = admission.call_mutating(&attempt, &mut warnings)?;
            self.warnings.extend(warnings);
            Ok(called.or(changed))
        }

        pub(super) fn validate(&mut self, attempt: &Attempt<'_>) -> Result<Vec<String>, ApiError> {
            match (self.policies(attempt.info), &self.author) {
                (Some(policies), Some(author)) => {
                    let admission = Admission::new(self, &policies, author.user());
                    let mut warnings = admission.validate(attempt)?;
                    warnings.extend(admission.call_validating(attempt)?);
                    Ok(warnings)
                }
                _ => Ok(Vec::new()),
            }
        }
    }
}

#[cfg(not(feature = "cel"))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with CEL")]
mod without_cel {
    use serde_json::Value;

    use super::{Attempt, State};
    use crate::error::ApiError;
    use crate::kinds::ResourceInfo;

    impl State {
        pub(in crate::cluster) fn is_waiting() -> bool {
            false
        }

        pub(in crate::cluster) fn identify(_: &mut Value) {}

        pub(in crate::cluster) fn has_mutating(&mut self, _: &ResourceInfo) -> bool {
            false
        }

        pub(super) fn has_validating(&mut self, _: &ResourceInfo) -> bool {
            false
        }

        pub(super) fn mutate(&mut self, _: &Attempt<'_>) -> Result<Option<Value>, ApiError> {
            Ok(None)
        }

        pub(super) fn validate(&mut self, _: &Attempt<'_>) -> Result<Vec<String>, ApiError> {
            Ok(Vec::new())
        }
    }
}
