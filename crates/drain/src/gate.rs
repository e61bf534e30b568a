//! The gate: a ConfigMap in Belayer's namespace that controls whether holds may be added.
//!
//! | key | values | read by |
//! | --- | --- | --- |
//! | `mode` | `normal`, `draining` | every replica, and the admission policies |
//! | `hold`, `holdWorkflows`, `holdClaims`, `holdRecreations` | `on`; any other value means off | the admission policies |
//! | `closed.NAMESPACE` | `backlog`, or any value set by an admin; either closes the namespace | the policy that holds pods |
//!
//! While the mode is `draining`, no replica and no policy adds a hold. The mode stays until it is reset, also
//! across restarts.
//!
//! The value of a switch that is off names what turned it off, and only that turns it on again: `draining` the
//! drain, `switched-off` a start without the component, `observing` pod-finalizer while all its profiles only
//! observe, `off` the backlog gate (which notes it in another key) or an admin. The keys of closed namespaces
//! belong to pod-finalizer: a drain does not change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::names;

pub use belayer_holds::names::{GATE_DRAINING as DRAINING, GATE_MODE as MODE};

/// The value of [`MODE`] in normal operation.
pub const NORMAL: &str = "normal";

/// The value of a switch whose component is switched off.
pub const SWITCHED_OFF: &str = "switched-off";

/// The value of a switch whose policy may add holds.
pub const ON: &str = "on";

/// Annotation on Belayer's namespace: `"true"` means that no hold is left and the namespace may be deleted.
/// The policy that guards the namespace reads it.
pub const DRAINED: &str = "belayer.dev/drained";

/// Prefix of the keys of the policies' switches.
const SWITCH: &str = "hold";

/// The switches in a new ConfigMap.
const SWITCHES: &[&str] = &["hold", "holdClaims", "holdRecreations", "holdWorkflows"];

/// The gate ConfigMap as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    uid: String,
    version: String,
    data: BTreeMap<String, String>,
}

/// Keys of the gate and their new values.
pub type Change = BTreeMap<String, String>;

impl State {
    #[cfg(test)]
    pub(crate) fn with_data(data: BTreeMap<String, String>) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }

    /// Whether Belayer is drained.
    pub fn is_draining(&self) -> bool {
        self.data.get(MODE).map(String::as_str) == Some(DRAINING)
    }

    /// The keys of a gate that a drain creates.
    pub fn made_draining() -> Change {
        let all = SWITCHES.iter().chain([&MODE]);
        all.map(|key| ((*key).to_owned(), DRAINING.to_owned()))
            .collect()
    }

    /// The keys to change so that no hold is added any more. A switch that is off already keeps its value:
    /// the drain must not turn it on again.
    pub fn to_draining(&self) -> Change {
        let on = self.switches().filter(|(_, value)| *value == ON);
        let switches = on.map(|(key, _)| (key.clone(), DRAINING));
        self.changes(switches.chain([(MODE.to_owned(), DRAINING)]))
    }

    /// The state after a change.
    #[must_use]
    pub fn with(&self, change: &Change) -> Self {
        let mut changed = self.clone();
        let pairs = change.iter();
        changed
            .data
            .extend(pairs.map(|(key, value)| (key.clone(), value.clone())));
        changed
    }

    /// The switches that are off outside of a drain, with their values, and the namespaces that an admin
    /// closed. Namespaces that the backlog closed open without an admin.
    pub fn still_off(&self) -> Vec<(String, String)> {
        let off = self.switches().filter(|(_, value)| *value != ON);
        let closed = self.data.iter().filter(|(key, value)| {
            key.starts_with(names::GATE_CLOSED_PREFIX) && *value != names::GATE_CLOSED_BY_BACKLOG
        });
        off.chain(closed)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// The keys to change so that holds are added again. A switch that was off for another reason
    /// stays off.
    pub fn to_normal(&self) -> Change {
        let drained = self.switches().filter(|(_, value)| *value == DRAINING);
        let switches = drained.map(|(key, _)| (key.clone(), ON));
        self.changes(switches.chain([(MODE.to_owned(), NORMAL)]))
    }

    /// The keys to change so that the switches of these components are on or off. A switch that an admin or
    /// the backlog gate turned off stays off. If the mode was reset by hand, a switch that still is
    /// `draining` is turned on.
    pub fn to_components(&self, on: &[&str], off: &[&str]) -> Change {
        let now = |key: &str| self.data.get(key).map(String::as_str);
        let up = on
            .iter()
            .filter(|key| matches!(now(key), Some(SWITCHED_OFF | DRAINING)))
            .map(|key| ((*key).to_owned(), ON));
        let down = off
            .iter()
            .filter(|key| now(key) == Some(ON))
            .map(|key| ((*key).to_owned(), SWITCHED_OFF));
        self.changes(up.chain(down))
    }

    fn switches(&self) -> impl Iterator<Item = (&String, &String)> {
        self.data.iter().filter(|(key, _)| key.starts_with(SWITCH))
    }

    fn changes(&self, wanted: impl Iterator<Item = (String, &'static str)>) -> Change {
        wanted
            .filter(|(key, value)| self.data.get(key).map(String::as_str) != Some(value))
            .map(|(key, value)| (key, value.to_owned()))
            .collect()
    }
}

/// Reads and writes the gate ConfigMap.
#[derive(Debug, Clone)]
pub struct Gate {
    executor: Arc<Executor>,
    key: ObjectKey,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    items: Option<Vec<ConfigMap>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

impl From<ConfigMap> for State {
    fn from(map: ConfigMap) -> Self {
        Self {
            uid: map.metadata.uid,
            version: map.metadata.resource_version,
            data: map.data.unwrap_or_default(),
        }
    }
}

impl Gate {
    /// The gate in Belayer's namespace.
    pub fn new(executor: Arc<Executor>, namespace: &str) -> Self {
        Self {
            executor,
            key: ObjectKey::new(namespace, names::GATE_CONFIG_MAP),
        }
    }

    /// Namespace and name of the ConfigMap.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The executor for its requests.
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Reads the gate; `None` if the ConfigMap does not exist.
    ///
    /// # Errors
    ///
    /// As [`Request::send`].
    pub async fn read(&self) -> Result<Option<State>, RequestError> {
        let request = Request::get(Resource::config_maps().object_path(&self.key));
        match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => Ok(Some(answer.json::<ConfigMap>()?.into())),
            Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the gate, and the version to watch from.
    pub(crate) async fn list(&self) -> Result<(Option<State>, String), RequestError> {
        let request = Request::get(self.collection()).query("fieldSelector", self.selector());
        let answer = self.executor.read(&request, Class::Evidence).await?;
        let list: List = answer.json()?;
        let Some(items) = list.items else {
            return Err(RequestError::Decode("a list without items".to_owned()));
        };
        let named = items.into_iter().next().map(State::from);
        Ok((named, list.metadata.resource_version))
    }

    /// A watch of the gate from `version`.
    pub(crate) fn watch(&self, version: &str, seconds: u64) -> Request {
        Request::get(self.collection())
            .query("watch", "true")
            .query("fieldSelector", self.selector())
            .query("resourceVersion", version)
            .query("timeoutSeconds", seconds.to_string())
    }

    fn collection(&self) -> String {
        Resource::config_maps().path(self.key.namespace())
    }

    fn selector(&self) -> String {
        format!("metadata.name={}", self.key.name())
    }

    /// Changes keys of the version that was read.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; a conflict if another client changed it since.
    pub async fn write(&self, state: &State, change: &Change) -> Result<(), RequestError> {
        let body = json!({
            "metadata": { "uid": state.uid, "resourceVersion": state.version },
            "data": change,
        });
        let path = Resource::config_maps().object_path(&self.key);
        let request = Request::patch(path, PatchKind::Merge, body.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await.map(drop)
    }

    /// Creates the ConfigMap.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; not found if its namespace does not exist.
    pub async fn create(&self, data: &Change) -> Result<(), RequestError> {
        let object: Value = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.key.name(),
                "namespace": self.key.namespace(),
                "labels": { "app.kubernetes.io/name": "belayer" },
            },
            "data": data,
        });
        let request = Request::post(self.collection(), object.to_string())
            .query("fieldManager", names::FIELD_MANAGER);
        self.executor.write(&request, Class::Write).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn state(data: &[(&str, &str)]) -> State {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        State {
            data: data.iter().map(own).collect(),
            ..State::default()
        }
    }

    fn changes(change: &Change) -> Vec<(&str, &str)> {
        let pairs = change.iter();
        pairs.map(|(key, value)| (&**key, &**value)).collect()
    }

    #[test]
    fn draining_turns_every_switch_off_also_unknown_ones() {
        let open = state(&[("hold", "on"), ("holdTomorrow", "on"), ("other", "on")]);
        assert_eq!(
            changes(&open.to_draining()),
            [
                ("hold", DRAINING),
                ("holdTomorrow", DRAINING),
                ("mode", DRAINING),
            ]
        );
        let data = State::made_draining();
        assert_eq!(data.len(), SWITCHES.len() + 1);
        let draining = State {
            data,
            ..State::default()
        };
        assert!(draining.is_draining());
        assert!(
            draining.to_draining().is_empty(),
            "no change while draining"
        );
    }

    /// A switch that was off before a drain is off after it.
    #[test]
    fn a_drain_and_its_end_leave_a_switch_as_it_was() {
        let before = state(&[
            ("mode", NORMAL),
            ("hold", "on"),
            ("holdClaims", "off"),
            ("holdRecreations", "not today"),
            ("holdWorkflows", SWITCHED_OFF),
            ("closed.team-a", "backlog"),
            ("closed.team-b", "maintenance"),
        ]);
        let draining = before.with(&before.to_draining());
        assert!(draining.is_draining());
        assert_eq!(draining.data["hold"], DRAINING);
        let after = draining.with(&draining.to_normal());
        assert_eq!(after, before);
        let off = after.still_off();
        let off: Vec<&str> = off.iter().map(|(key, _)| &**key).collect();
        let expected = [
            "holdClaims",
            "holdRecreations",
            "holdWorkflows",
            "closed.team-b",
        ];
        assert_eq!(off, expected);
    }

    #[rstest]
    #[case::no_key(&[], false)]
    #[case::normal(&[("mode", "normal")], false)]
    #[case::another_value(&[("mode", "Draining")], false)]
    #[case::a_closed_switch_alone(&[("hold", "draining")], false)]
    #[case::draining(&[("mode", "draining")], true)]
    fn only_the_mode_draining_drains(#[case] data: &[(&str, &str)], #[case] draining: bool) {
        assert_eq!(state(data).is_draining(), draining);
    }

    #[test]
    fn switches_follow_their_components() {
        let now = state(&[
            ("hold", "on"),
            ("holdClaims", "on"),
            ("holdWorkflows", SWITCHED_OFF),
            ("holdRecreations", "off"),
            ("holdTomorrow", DRAINING),
        ]);
        let change = now.to_components(
            &["hold", "holdWorkflows", "holdRecreations", "holdTomorrow"],
            &["holdClaims"],
        );
        assert_eq!(
            changes(&change),
            [
                ("holdClaims", SWITCHED_OFF),
                ("holdTomorrow", "on"),
                ("holdWorkflows", "on"),
            ]
        );
    }
}
