//! `NodeWipe`: for one node, the rejected pods whose directories its node agent must remove. pod-recreation writes the
//! spec, the agent of the node writes the status, and no write conflicts with another: both are maps by pod UID.
//!
//! It is the durable list: an entry outlives its record, later rejections and restarts of the agent. It contains no
//! path to remove, because only the agent's own configuration decides which directories belong to a pod.
//!
//! ```
//! use belayer_holds::node_wipe::resource;
//!
//! assert_eq!(&*resource().plural, "nodewipes");
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::json::{JsonMeta, SlimJson};
use belayer_core::slim::{DecodeContext, DecodeError, ObjectMeta, Slim};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Kind.
pub const KIND: &str = "NodeWipe";

/// Lower-case plural.
pub const PLURAL: &str = "nodewipes";

/// Most wipes of one node, by the schema of the kind.
pub const MAX_WIPES: usize = 1_000;

/// The kind. The [module's example](self) names it.
pub fn resource() -> Resource {
    Resource::new("belayer.dev", "v1alpha1", KIND, PLURAL)
}

/// The wipes of the node that it is named after. Its kind is
/// [`resource`]; the [module's example](self) names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeWipe {
    /// Metadata; the name is that of the node.
    pub meta: ObjectMeta,
    /// The wipes, by UID of the pod.
    pub wipes: BTreeMap<Uid, Wipe>,
    /// Pods with a report and without an entry.
    pub forgotten: Vec<Uid>,
}

/// One rejected pod whose directories are to be removed. Part of a
/// [`NodeWipe`], the kind of the [example](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wipe {
    /// Namespace and name of the pod.
    pub pod: ObjectKey,
    /// Name of its record.
    pub record: Arc<str>,
    /// When Belayer requested it; `None` if that cannot be read.
    pub requested: Option<Timestamp>,
    /// The last report of the node agent.
    pub report: Option<Report>,
}

impl Wipe {
    /// Whether the agent has reported that nothing is left.
    pub fn is_done(&self) -> bool {
        let report = self.report.as_ref();
        report.is_some_and(|report| report.state == WipeState::Wiped)
    }
}

/// Whether anything is left. Part of a [`Report`], in an object of the
/// kind of the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WipeState {
    /// Nothing of the pod is left on the node.
    Wiped,
    /// Something is left; the agent tries again.
    NotWiped,
}

/// What the node agent reports about one pod, as it is in the API. Part of [`Wipe`]. See the
/// [example](self).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether anything is left.
    pub state: WipeState,
    /// The reason, in CamelCase.
    #[serde(default)]
    pub reason: String,
    /// What is left.
    #[serde(default)]
    pub message: String,
    /// The directories of the pod, by the agent's configuration.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// An entry of `spec.wipes`, as it is in the API. Part of [`Wipe`]. See the [example](self).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod_name: String,
    /// Name of its record.
    pub record: String,
    /// When Belayer requested the wipe.
    pub requested_at: String,
}

impl Slim for NodeWipe {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta)
            || self.wipes != older.wipes
            || self.forgotten != older.forgotten
    }
}

/// The JSON form. An informer of [`NodeWipe`] decodes it. See the [example](self).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JsonNodeWipe<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
    spec: Option<Map<Entry>>,
    status: Option<Map<Report>>,
}

#[derive(Debug, Deserialize)]
struct Map<T> {
    #[serde(default = "none")]
    wipes: Option<BTreeMap<String, T>>,
}

fn none<T>() -> Option<T> {
    None
}

impl<T> Map<T> {
    fn get(map: Option<&Self>) -> Option<&BTreeMap<String, T>> {
        map?.wipes.as_ref()
    }
}

impl SlimJson for NodeWipe {
    type Json<'a> = JsonNodeWipe<'a>;
    const METADATA_ONLY: bool = false;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        let reports = Map::get(json.status.as_ref());
        let entries = Map::get(json.spec.as_ref());
        let wipes = entries.into_iter().flatten();
        let is_forgotten = |uid: &&String| entries.is_none_or(|all| !all.contains_key(*uid));
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
            wipes: wipes
                .map(|(uid, entry)| {
                    let wipe = Wipe {
                        pod: ObjectKey::new(entry.namespace.as_str(), entry.pod_name.as_str()),
                        record: entry.record.as_str().into(),
                        requested: entry.requested_at.parse().ok(),
                        report: reports.and_then(|all| all.get(uid)).cloned(),
                    };
                    (Uid::new(uid), wipe)
                })
                .collect(),
            forgotten: reports
                .into_iter()
                .flat_map(BTreeMap::keys)
                .filter(is_forgotten)
                .map(Uid::new)
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::informer::{Decoder as _, JsonDecoder};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value, status: Value) -> Result<NodeWipe, DecodeError> {
        let object = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": KIND,
            "metadata": { "name": "node-1", "uid": "w-1", "resourceVersion": "7" },
            "spec": spec, "status": status,
        });
        JsonDecoder::new(DecodeContext::default()).decode_object(object.to_string().as_bytes())
    }

    #[test]
    fn a_report_belongs_to_the_entry_of_its_uid() {
        let entry = json!({
            "namespace": "shop", "podName": "web", "record": "web-1", "requestedAt": "2026-01-01T00:00:00Z",
        });
        let read = read(
            json!({ "wipes": { "u-1": entry, "u-2": entry } }),
            json!({ "wipes": { "u-2": { "state": "Wiped" }, "u-3": { "state": "NotWiped" } } }),
        );
        let NodeWipe {
            wipes, forgotten, ..
        } = read.unwrap();
        assert_eq!(wipes.len(), 2);
        assert_eq!(forgotten, [Uid::new("u-3")]);
        let (first, second) = (&wipes[&Uid::new("u-1")], &wipes[&Uid::new("u-2")]);
        assert_eq!(first.pod, ObjectKey::new("shop", "web"));
        assert!(first.requested.is_some() && first.report.is_none());
        assert!(second.is_done() && !first.is_done());
    }

    #[rstest]
    #[case::null(Value::Null, Value::Null)]
    #[case::empty(json!({}), json!({}))]
    #[case::null_maps(json!({ "wipes": null }), json!({ "wipes": null }))]
    fn without_entries_there_is_nothing_to_wipe(#[case] spec: Value, #[case] status: Value) {
        assert!(read(spec, status).unwrap().wipes.is_empty());
    }

    #[test]
    fn an_unreadable_time_is_unknown() {
        let read = read(
            json!({ "wipes": { "u-1": { "namespace": "shop", "podName": "web", "requestedAt": "soon" } } }),
            json!({}),
        );
        assert_eq!(read.unwrap().wipes[&Uid::new("u-1")].requested, None);
    }

    #[test]
    fn a_malformed_list_is_an_error() {
        assert!(read(json!({ "wipes": 7 }), json!({})).is_err());
    }
}
