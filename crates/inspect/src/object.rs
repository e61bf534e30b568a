//! Objects as the scan stores them: a reference, and more for objects that are being deleted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::Labels;
use belayer_core::slim::json::Text;

use crate::kinds::Kind;
use crate::untrusted::word;

/// Kind, namespace, name and UID of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: Uid,
}

impl ObjectRef {
    /// The kubectl command with this verb: `kubectl -n shop get pods web-0`.
    pub fn kubectl(&self, verb: &str) -> String {
        let (kind, name) = (self.kind.name(), self.key.name());
        // The name alone would be an option.
        let object = if name.starts_with('-') {
            word(&format!("{kind}/{name}")).into_owned()
        } else {
            format!("{kind} {}", word(name))
        };
        match self.key.namespace() {
            Some(namespace) => format!("kubectl -n {namespace} {verb} {object}"),
            None => format!("kubectl {verb} {object}"),
        }
    }
}

/// `shop/pods/web-0`, or `nodes/node-1`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = self.key.namespace() {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}/{}", self.kind.name(), self.key.name())
    }
}

/// An object that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminating {
    /// The object.
    pub object: ObjectRef,
    /// End of its grace period: its deletion timestamp.
    pub since: Timestamp,
    /// Its finalizers, in order.
    pub finalizers: Vec<String>,
    /// The manager that last wrote each finalizer, by `managedFields`.
    pub set_by: BTreeMap<String, SetBy>,
    /// Its labels.
    pub labels: Labels,
}

/// An entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetBy {
    /// The field manager.
    pub manager: String,
    /// When.
    pub time: Option<Timestamp>,
}

/// One object of a metadata-only list; borrows from the answer.
#[derive(Deserialize)]
pub(crate) struct Item<'a> {
    #[serde(borrow)]
    pub(crate) metadata: Meta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta<'a> {
    #[serde(borrow)]
    pub(crate) name: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) namespace: Option<Text<'a>>,
    /// Empty for an object that an aggregated API computes.
    #[serde(borrow, default)]
    pub(crate) uid: Text<'a>,
    #[serde(default)]
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(borrow, default)]
    pub(crate) finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    pub(crate) owner_references: Option<Vec<Owner<'a>>>,
    #[serde(borrow, default)]
    pub(crate) labels: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Owner<'a> {
    #[serde(borrow, default)]
    pub(crate) uid: Text<'a>,
    #[serde(default)]
    pub(crate) block_owner_deletion: Option<bool>,
}

impl Meta<'_> {
    pub(crate) fn object(&self, kind: &Arc<Kind>) -> ObjectRef {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        ObjectRef {
            kind: Arc::clone(kind),
            key: ObjectKey::new(namespace, &*self.name),
            uid: Uid::new(&*self.uid),
        }
    }

    /// `None` unless it is being deleted.
    pub(crate) fn terminating(&self, kind: &Arc<Kind>) -> Option<Terminating> {
        let since = self.deletion_timestamp?;
        let labels = self
            .labels
            .and_then(|raw| serde_json::from_str::<BTreeMap<String, String>>(raw.get()).ok());
        let names = self.finalizers.iter().flatten();
        let finalizers: Vec<String> = names.map(|name| (**name).to_owned()).collect();
        let managed = self.managed_fields.map_or("null", RawValue::get);
        Some(Terminating {
            object: self.object(kind),
            since,
            set_by: set_by(managed, &finalizers),
            finalizers,
            labels: labels.into_iter().flatten().collect(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    time: Option<Timestamp>,
    #[serde(default)]
    fields_v1: Value,
}

/// The API server adds these when a delete request asks for it: they have no manager.
const BY_THE_SERVER: &[&str] = &["foregroundDeletion", "orphan"];

/// For each finalizer the manager that wrote it last.
fn set_by(managed_fields: &str, finalizers: &[String]) -> BTreeMap<String, SetBy> {
    let entries: Option<Vec<ManagedFields>> = serde_json::from_str(managed_fields).ok().flatten();
    let mut found: BTreeMap<String, SetBy> = BTreeMap::new();
    for entry in entries.unwrap_or_default() {
        let Some(managed) = entry
            .fields_v1
            .pointer("/f:metadata/f:finalizers")
            .and_then(Value::as_object)
        else {
            continue;
        };
        let mut members: Vec<String> = managed.keys().filter_map(|key| member(key)).collect();
        if members.is_empty() {
            // The list is managed as a whole.
            members = finalizers.to_vec();
        }
        members.retain(|name| !BY_THE_SERVER.contains(&name.as_str()));
        for finalizer in members {
            let newer = found
                .get(&finalizer)
                .is_none_or(|known| known.time <= entry.time);
            if newer {
                let by = SetBy {
                    manager: entry.manager.clone(),
                    time: entry.time,
                };
                found.insert(finalizer, by);
            }
        }
    }
    found
}

/// The member of a set that `v:"name"` stands for.
fn member(key: &str) -> Option<String> {
    serde_json::from_str(key.strip_prefix("v:")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant may give a RoleBinding almost any name.
    #[test]
    fn a_command_has_the_name_as_one_word() {
        let bindings = belayer_core::object::Resource::new(
            "rbac.authorization.k8s.io",
            "v1",
            "RoleBinding",
            "rolebindings",
        );
        let kind = Kind {
            resource: bindings,
            namespaced: true,
            singular: "rolebinding".to_owned(),
            short_names: Vec::new(),
            deletable: true,
            versions: Vec::new(),
        };
        let kind = Arc::new(kind);
        let command = |name: &str| {
            let object = ObjectRef {
                kind: Arc::clone(&kind),
                key: ObjectKey::new("t", name),
                uid: Uid::new("u"),
            };
            object.kubectl("get")
        };
        const GET: &str = "kubectl -n t get rolebindings.rbac.authorization.k8s.io";
        assert_eq!(command("system:a"), format!("{GET} system:a"));
        assert_eq!(command("x$(id)"), format!("{GET} 'x$(id)'"));
        assert_eq!(command("--all"), format!("{GET}/--all"));
    }

    #[test]
    fn a_list_that_is_managed_as_a_whole_counts_for_each_member() {
        let fields =
            r#"[{"manager": "operator", "fieldsV1": {"f:metadata": {"f:finalizers": {}}}}]"#;
        let names = ["a/b".to_owned(), "foregroundDeletion".to_owned()];
        let found = set_by(fields, &names);
        assert_eq!(found["a/b"].manager, "operator");
        assert_eq!(found.len(), 1, "the API server adds the other one");
    }

    #[test]
    fn the_last_manager_of_each_finalizer_is_found() {
        let fields = r#"[
            {"manager": "kubectl", "time": "2026-01-02T00:00:00Z", "fieldsV1":
                {"f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}}}},
            {"manager": "operator", "time": "2026-01-03T00:00:00Z", "fieldsV1":
                {"f:metadata": {"f:finalizers": {"v:\"a/b\"": {}, "v:\"c\"": {}}}}},
            {"manager": "other", "fieldsV1": {"f:spec": {}}}
        ]"#;
        let found = set_by(fields, &[]);
        assert_eq!(found["a/b"].manager, "operator");
        assert_eq!(found["c"].manager, "operator");
        assert_eq!(found.len(), 2);
        assert!(set_by("null", &[]).is_empty() && set_by("{", &[]).is_empty());
    }
}
