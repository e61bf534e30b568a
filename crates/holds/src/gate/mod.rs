//! The gate: a ConfigMap in Belayer's namespace that controls whether finalizers may be added.
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
//! A gate is installed without keys, so that nothing adds a finalizer before a leader removes them: the leader turns
//! on the switches of its components. Applying the manifests again changes no key, and so neither a drain nor what an
//! admin turned off.
//!
//! The value of a switch that is off names what turned it off, and only that turns it on again: `draining` the
//! drain, `switched-off` a start without the component, `observing` pod-finalizer while all its profiles only
//! observe, `off` the backlog gate (which notes it in another key) or an admin. The keys of closed namespaces
//! belong to pod-finalizer: a drain does not change them.

mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use belayer_core::object::{ObjectKey, Uid};

use crate::names::{
    GATE_BACKLOG, GATE_BACKLOG_CLOSED, GATE_CLOSED_BY_BACKLOG, GATE_CLOSED_PREFIX, GATE_CONFIG_MAP,
    GATE_DRAINING as DRAINING, GATE_MODE as MODE,
};

pub use client::GateClient;

/// The value of `mode` in normal operation.
const NORMAL: &str = "normal";

/// The value of a switch whose component is switched off.
const SWITCHED_OFF: &str = "switched-off";

/// The value of a switch whose policy may add finalizers.
const ON: &str = "on";

/// Prefix of the keys of the policies' switches.
const SWITCH: &str = "hold";

/// The switches in a new ConfigMap.
const SWITCHES: &[&str] = &["hold", "holdClaims", "holdRecreations", "holdWorkflows"];

/// The gate ConfigMap as read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GateConfigMap {
    metadata: Metadata,
    #[serde(deserialize_with = "or_empty")]
    data: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

fn or_empty<'de, D: Deserializer<'de>>(data: D) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(Option::deserialize(data)?.unwrap_or_default())
}

/// Keys of the gate and their new values; `None` removes the key.
pub type Change = BTreeMap<String, Option<&'static str>>;

impl GateConfigMap {
    /// Namespace and name of the ConfigMap, in Belayer's own `namespace`.
    pub fn key(namespace: &str) -> ObjectKey {
        ObjectKey::new(namespace, GATE_CONFIG_MAP)
    }

    /// Its UID.
    pub fn uid(&self) -> Uid {
        Uid::new(&*self.metadata.uid)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.data.get(key).map(String::as_str)
    }

    /// Whether Belayer is drained.
    pub fn is_draining(&self) -> bool {
        self.get(MODE) == Some(DRAINING)
    }

    /// Whether the admission policy with this switch adds finalizers.
    pub fn is_on(&self, switch: &str) -> bool {
        self.get(switch) == Some(ON)
    }

    /// Whether the backlog closed the whole cluster.
    pub fn is_closed_by_backlog(&self) -> bool {
        self.get(GATE_BACKLOG) == Some(GATE_BACKLOG_CLOSED)
    }

    /// The closed namespaces, with the value that gives the reason.
    pub fn closed(&self) -> impl Iterator<Item = (&str, &str)> {
        let closed = self.data.iter();
        closed.filter_map(|(key, value)| Some((key.strip_prefix(GATE_CLOSED_PREFIX)?, &**value)))
    }

    /// The namespaces that their backlog closed.
    pub fn closed_by_backlog(&self) -> BTreeSet<Arc<str>> {
        let closed = self.closed();
        let ours = closed.filter(|(_, value)| *value == GATE_CLOSED_BY_BACKLOG);
        ours.map(|(namespace, _)| namespace.into()).collect()
    }

    /// The keys of a gate that a drain creates.
    pub fn made_draining() -> Change {
        let all = SWITCHES.iter().chain([&MODE]);
        all.map(|key| ((*key).to_owned(), Some(DRAINING))).collect()
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
        for (key, value) in change {
            match value {
                Some(value) => changed.data.insert(key.clone(), (*value).to_owned()),
                None => changed.data.remove(key),
            };
        }
        changed
    }

    /// The switches that are off outside of a drain, with their values, and the namespaces that an admin
    /// closed. Namespaces that the backlog closed open without an admin.
    pub fn still_off(&self) -> Vec<(String, String)> {
        let off = self.switches().filter(|(_, value)| *value != ON);
        let closed = self.data.iter().filter(|(key, value)| {
            key.starts_with(GATE_CLOSED_PREFIX) && *value != GATE_CLOSED_BY_BACKLOG
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
    /// `draining` is turned on. A gate begins without keys: its first leader opens it.
    pub fn to_components(&self, on: &[&str], off: &[&str]) -> Change {
        let up = on
            .iter()
            .filter(|key| matches!(self.get(key), None | Some(SWITCHED_OFF | DRAINING)))
            .map(|key| ((*key).to_owned(), ON));
        let down = off
            .iter()
            .filter(|key| self.is_on(key))
            .map(|key| ((*key).to_owned(), SWITCHED_OFF));
        self.changes(up.chain(down))
    }

    fn switches(&self) -> impl Iterator<Item = (&String, &String)> {
        self.data.iter().filter(|(key, _)| key.starts_with(SWITCH))
    }

    fn changes(&self, wanted: impl Iterator<Item = (String, &'static str)>) -> Change {
        wanted
            .filter(|(key, value)| self.get(key) != Some(value))
            .map(|(key, value)| (key, Some(value)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn state(data: &[(&str, &str)]) -> GateConfigMap {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        GateConfigMap {
            data: data.iter().map(own).collect(),
            ..GateConfigMap::default()
        }
    }

    fn changes(change: &Change) -> Vec<(&str, &str)> {
        let pairs = change.iter();
        pairs.map(|(key, value)| (&**key, value.unwrap())).collect()
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
        let draining = GateConfigMap::default().with(&GateConfigMap::made_draining());
        assert_eq!(draining.data.len(), SWITCHES.len() + 1);
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

    /// H5: installing turns nothing on before a Belayer runs. H3: nor does a drain turn on what never was.
    #[test]
    fn h5_an_empty_gate_is_opened_by_its_leader_and_by_nothing_else() {
        let installed = state(&[]);
        assert!(!installed.is_on("hold") && !installed.is_draining());
        let opened = installed.with(&installed.to_components(&["hold"], &["holdClaims"]));
        assert!(opened.is_on("hold") && opened.get("holdClaims").is_none());
        let draining = installed.with(&installed.to_draining());
        assert!(draining.is_draining() && draining.get("hold").is_none());
        let after = draining.with(&draining.to_normal());
        assert!(!after.is_on("hold"));
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
            &[
                "hold",
                "holdNew",
                "holdWorkflows",
                "holdRecreations",
                "holdTomorrow",
            ],
            &["holdClaims"],
        );
        assert_eq!(
            changes(&change),
            [
                ("holdClaims", SWITCHED_OFF),
                ("holdNew", "on"),
                ("holdTomorrow", "on"),
                ("holdWorkflows", "on"),
            ]
        );
    }
}
