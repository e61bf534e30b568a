//! The gate: an object of the kind `Gate` in Belayer's namespace that controls whether finalizers may be added. It is
//! the parameter of the admission policies.
//!
//! | key of `data` | values | read by |
//! | --- | --- | --- |
//! | `mode` | `normal`, `draining` | every replica, and the admission policies |
//! | `drained` | `true` | the policy that guards Belayer's namespace and CRDs, while `mode` is `draining` |
//! | `hold`, `holdWorkflows`, `holdClaims`, `holdRecreations` | `on`; any other value means off | the admission policies |
//! | `lease.SWITCH` | the Lease of the leader that turned the switch on | `belayer check` |
//! | `backlog` | `closed`, written by pod-finalizer while the backlog limit of the cluster is reached | the policy that holds pods |
//! | `closed.NAMESPACE` | `backlog`, or any value set by an admin; either closes the namespace | the policy that holds pods |
//!
//! While the mode is `draining`, no replica and no policy adds a hold. The mode stays until it is reset, also
//! across restarts.
//!
//! No manifest contains the gate: the first leader, or a drain, creates it, so that nothing adds a finalizer before a
//! leader removes them, and applying manifests again changes nothing. It is owned by the ServiceAccounts of its
//! leaders, so that it is deleted with the installation. A new installation does not adopt the gate of the one before.
//!
//! `Gate` is a custom resource and not a ConfigMap, because kube-apiserver 1.36 stops following a built-in kind of parameter
//! for good when the last policy that uses it is deleted.
//!
//! The value of a switch that is off names what turned it off, and only that turns it on again: `draining` the
//! drain, `switched-off` a controller that does not run or only observes, `off` the backlog limit (which notes it in
//! another key) or an admin. The keys of closed namespaces belong to pod-finalizer: a drain does not change them.
//!
//! ```
//! use belayer_holds::gate::GateObject;
//! use belayer_holds::names::{GATE_DRAINING, GATE_MODE};
//!
//! let gate = GateObject::default().with(&GateObject::made_draining());
//! assert!(gate.is_draining());
//! assert_eq!(gate.get(GATE_MODE), Some(GATE_DRAINING));
//! ```

mod client;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::json::nullable;

use crate::names::{
    GATE, GATE_BACKLOG, GATE_BACKLOG_CLOSED, GATE_CLOSED_BY_BACKLOG, GATE_CLOSED_PREFIX,
    GATE_DRAINED as DRAINED, GATE_DRAINING as DRAINING, GATE_LEASE_PREFIX, GATE_MODE as MODE,
};

pub use client::{Adopted, GateClient};

/// The value of `mode` in normal operation.
const NORMAL: &str = "normal";

/// The value of a switch whose controller is switched off or only observes.
const SWITCHED_OFF: &str = "switched-off";

/// What 0.1.0 wrote while all profiles of pod-finalizer only observed.
const OBSERVING: &str = "observing";

/// The value of a switch whose policy may add finalizers.
const ON: &str = "on";

/// Prefix of the keys of the policies' switches.
const SWITCH: &str = "hold";

/// The value of [`DRAINED`].
const YES: &str = "true";

/// The CustomResourceDefinition of the kind, ready for `kubectl apply`.
pub const CRD: &str = include_str!("crd.yaml");

/// The kind `Gate`. [`GateClient`] reads and writes it.
pub fn resource() -> Resource {
    Resource::new("belayer.dev", "v1alpha1", "Gate", "gates")
}

/// A ServiceAccount with which the gate is deleted, as its owner.
/// [`GateClient::create`](crate::gate::GateClient::create) and
/// [`GateClient::adopt`](crate::gate::GateClient::adopt) add it to the owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    uid: String,
}

impl Account {
    /// The account of this name and UID, in the namespace of the gate.
    pub fn new(name: &str, uid: &str) -> Self {
        Self {
            api_version: "v1",
            kind: "ServiceAccount",
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }
}

/// The gate as read. The [module's example](self) sets the mode of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GateObject {
    metadata: Metadata,
    #[serde(deserialize_with = "nullable")]
    data: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
    #[serde(deserialize_with = "nullable")]
    owner_references: Vec<Value>,
}

/// Keys of the gate and their new values; `None` removes the key.
/// [`GateObject::with`](crate::gate::GateObject::with) applies one.
pub type Change = BTreeMap<String, Option<Cow<'static, str>>>;

impl GateObject {
    /// Namespace and name of the gate, in Belayer's own `namespace`.
    pub fn key(namespace: &str) -> ObjectKey {
        ObjectKey::new(namespace, GATE)
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
        let belayers = closed.filter(|(_, value)| *value == GATE_CLOSED_BY_BACKLOG);
        belayers.map(|(namespace, _)| namespace.into()).collect()
    }

    /// The keys of a gate that a drain creates. It has no switches: the first leader opens them after the drain.
    pub fn made_draining() -> Change {
        [(MODE.to_owned(), Some(Cow::Borrowed(DRAINING)))].into()
    }

    /// All its keys, with which [`GateClient::create`](crate::gate::GateClient::create) creates it again.
    pub fn keys(&self) -> Change {
        let keys = self.data.iter();
        keys.map(|(key, value)| (key.clone(), Some(Cow::Owned(value.clone()))))
            .collect()
    }

    /// The keys to change so that no hold is added any more. A switch that is off already keeps its value:
    /// the drain must not turn it on again.
    pub fn to_draining(&self) -> Change {
        let on = self.switches().filter(|(_, value)| *value == ON);
        let switches = on.map(|(key, _)| (key.clone(), DRAINING));
        let mut change = self.changes(switches.chain([(MODE.to_owned(), DRAINING)]));
        self.unmark(&mut change);
        change
    }

    /// The keys to change after a drain that left no hold.
    pub fn to_drained(&self) -> Change {
        self.changes([(DRAINED.to_owned(), YES)].into_iter())
    }

    /// Whether Belayer's namespace and CRDs may be deleted.
    #[cfg(test)]
    fn is_drained(&self) -> bool {
        self.is_draining() && self.get(DRAINED) == Some(YES)
    }

    fn unmark(&self, change: &mut Change) {
        if self.get(DRAINED).is_some() {
            change.insert(DRAINED.to_owned(), None);
        }
    }

    /// The state after a change.
    #[must_use]
    pub fn with(&self, change: &Change) -> Self {
        let mut changed = self.clone();
        for (key, value) in change {
            match value {
                Some(value) => changed.data.insert(key.clone(), value.to_string()),
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
        let mut change = self.changes(switches.chain([(MODE.to_owned(), NORMAL)]));
        self.unmark(&mut change);
        change
    }

    /// The Lease of the leader that turned this switch on, if one did.
    pub fn lease_of(&self, switch: &str) -> Option<&str> {
        self.get(&format!("{GATE_LEASE_PREFIX}{switch}"))
    }

    /// The Lease of the leader of a switch; `None` if its controller is switched off, because it has no leader then.
    pub fn lease_in_use(&self, switch: &str) -> Option<&str> {
        let lease = self.lease_of(switch);
        lease.filter(|_| self.get(switch) != Some(SWITCHED_OFF))
    }

    /// The Leases of the leaders of all switches, each once.
    pub fn leases(&self) -> BTreeSet<&str> {
        let switches = self.switches();
        let led = switches.filter_map(|(switch, _)| self.lease_in_use(switch));
        led.collect()
    }

    /// The switches of `on` that [`Self::to_components`] would turn on.
    pub fn closed_switches<'a>(
        &self,
        on: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a str> {
        on.filter(|key| {
            matches!(
                self.get(key),
                None | Some(SWITCHED_OFF | OBSERVING | DRAINING)
            )
        })
    }

    /// The keys to change so that the switches of these components are on or off, and that name the leader's `lease`. A
    /// switch that an admin or the backlog limit turned off stays off. If the mode was reset by hand, a switch that
    /// still is `draining` is turned on. A gate begins without keys: its first leader opens it.
    pub fn to_components(&self, on: &[&str], off: &[&str], lease: Option<&str>) -> Change {
        let up = self.closed_switches(on.iter().copied());
        let up = up.map(|key| (key.to_owned(), ON));
        let down = off
            .iter()
            .filter(|key| self.is_on(key))
            .map(|key| ((*key).to_owned(), SWITCHED_OFF));
        let mut change = self.changes(up.chain(down));
        let named = lease.into_iter().flat_map(|lease| {
            let others = on
                .iter()
                .filter(move |key| self.lease_of(key) != Some(lease));
            others.map(move |key| {
                let lease = Cow::Owned(lease.to_owned());
                (format!("{GATE_LEASE_PREFIX}{key}"), Some(lease))
            })
        });
        change.extend(named);
        change
    }

    /// Whether anything owns it, with which it is deleted.
    pub fn has_owners(&self) -> bool {
        !self.metadata.owner_references.is_empty()
    }

    /// Whether this account owns it.
    pub fn is_owned_by(&self, account: &Account) -> bool {
        self.owners().any(|owner| owner["uid"] == account.uid)
    }

    /// Whether it is of an earlier installation: an account of this name owned it that does not exist any more, so that the
    /// garbage collector is about to delete it.
    pub fn outlives(&self, account: &Account) -> bool {
        let is_earlier =
            |owner: &Value| owner["kind"] == account.kind && owner["name"] == account.name;
        !self.is_owned_by(account) && self.owners().any(is_earlier)
    }

    fn owners(&self) -> impl Iterator<Item = &Value> {
        self.metadata.owner_references.iter()
    }

    /// The owners with which [`GateClient::adopt`] adds this one; `None` if it is one already.
    fn owners_with(&self, account: &Account) -> Option<Vec<Value>> {
        if self.is_owned_by(account) {
            return None;
        }
        let mut owners = self.metadata.owner_references.clone();
        owners.push(json!(account));
        Some(owners)
    }

    fn switches(&self) -> impl Iterator<Item = (&String, &String)> {
        self.data.iter().filter(|(key, _)| key.starts_with(SWITCH))
    }

    fn changes(&self, wanted: impl Iterator<Item = (String, &'static str)>) -> Change {
        wanted
            .filter(|(key, value)| self.get(key) != Some(value))
            .map(|(key, value)| (key, Some(Cow::Borrowed(value))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn state(data: &[(&str, &str)]) -> GateObject {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        GateObject {
            data: data.iter().map(own).collect(),
            ..GateObject::default()
        }
    }

    fn changes(change: &Change) -> Vec<(&str, &str)> {
        let pairs = change.iter();
        let pairs = pairs.filter_map(|(key, value)| Some((&**key, value.as_deref()?)));
        pairs.collect()
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
        let draining = open.with(&open.to_draining());
        assert!(
            draining.to_draining().is_empty(),
            "no change while draining"
        );
    }

    #[test]
    fn a_backlog_closes_the_cluster_or_namespaces_beside_those_that_an_admin_closed() {
        let all = state(&[("backlog", "closed")]);
        assert!(all.is_closed_by_backlog());
        assert_eq!(all.closed().count(), 0);
        let some = state(&[
            ("backlog", "open"),
            ("closed.a", "backlog"),
            ("closed.b", "maintenance"),
            ("hold", "on"),
        ]);
        assert!(!some.is_closed_by_backlog());
        let closed: Vec<_> = some.closed().collect();
        assert_eq!(closed, [("a", "backlog"), ("b", "maintenance")]);
        assert_eq!(some.closed_by_backlog(), BTreeSet::from(["a".into()]));
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
        let opened = installed.with(&installed.to_components(&["hold"], &["holdClaims"], None));
        assert!(opened.is_on("hold") && opened.get("holdClaims").is_none());
        let draining = installed.with(&installed.to_draining());
        assert!(draining.is_draining() && draining.get("hold").is_none());
        let made = GateObject::default().with(&GateObject::made_draining());
        assert!(made.is_draining());
        for draining in [draining, made] {
            let after = draining.with(&draining.to_normal());
            assert_eq!(after, state(&[("mode", NORMAL)]));
        }
    }

    #[rstest]
    #[case::without_a_value(&[], true)]
    #[case::its_controller_did_not_run(&[("hold", SWITCHED_OFF)], true)]
    #[case::observing_as_an_older_version_wrote_it(&[("hold", OBSERVING)], true)]
    #[case::a_drain_that_was_ended_by_hand(&[("hold", DRAINING)], true)]
    #[case::by_an_admin_or_the_backlog(&[("hold", "off")], false)]
    fn only_what_turned_a_switch_off_turns_it_on(
        #[case] data: &[(&str, &str)],
        #[case] opens: bool,
    ) {
        let before = state(data);
        let after = before.with(&before.to_components(&["hold"], &[], None));
        assert_eq!(after.is_on("hold"), opens);
    }

    /// H3: the mark that lets the namespace be deleted ends with the drain, also if the mode is reset by hand.
    #[test]
    fn gate_the_drained_mark_ends_with_the_drain() {
        let gate = state(&[("hold", "on")]);
        let draining = gate.with(&gate.to_draining());
        assert!(!draining.is_drained());
        let drained = draining.with(&draining.to_drained());
        assert!(drained.is_drained() && drained.to_drained().is_empty());
        assert_eq!(drained.with(&drained.to_normal()).get(DRAINED), None);
        let by_hand = drained.with(&[(MODE.to_owned(), None)].into());
        assert!(!by_hand.is_drained());
        let again = by_hand.with(&by_hand.to_draining());
        assert!(again.is_draining() && !again.is_drained());
    }

    #[test]
    fn gate_names_the_lease_of_its_leader() {
        let now = state(&[
            ("hold", "on"),
            ("lease.hold", "earlier"),
            ("holdClaims", "off"),
        ]);
        let change =
            now.to_components(&["hold", "holdClaims"], &["holdWorkflows"], Some("belayer"));
        let expected = [("lease.hold", "belayer"), ("lease.holdClaims", "belayer")];
        assert_eq!(changes(&change), expected);
        let named = now.with(&change);
        assert_eq!(named.lease_of("hold"), Some("belayer"));
        assert!(
            named
                .to_components(&["hold"], &[], Some("belayer"))
                .is_empty()
        );
        let apart = named.with(&named.to_components(&["holdRecreations"], &[], Some("apart")));
        assert!(apart.leases().into_iter().eq(["apart", "belayer"]));
        let off = apart.with(&apart.to_components(&[], &["holdRecreations"], None));
        assert!(off.leases().into_iter().eq(["belayer"]));
    }

    /// It is deleted with the last of the accounts that own it.
    #[test]
    fn gate_is_owned_once_by_each_account() {
        let account = Account::new("belayer", "u-1");
        let gate = GateObject::default();
        let owners = gate.owners_with(&account).unwrap();
        let object = json!({ "metadata": { "ownerReferences": owners } });
        let gate: GateObject = serde_json::from_value(object).unwrap();
        assert_eq!(gate.owners_with(&account), None);
        let two = gate.owners_with(&Account::new("belayer-pod-recreation", "u-2"));
        assert_eq!(two.unwrap().len(), 2);
        assert!(gate.has_owners() && gate.is_owned_by(&account) && !gate.outlives(&account));
        let again = Account::new("belayer", "u-3");
        assert!(!gate.is_owned_by(&again) && gate.outlives(&again));
        assert!(!gate.outlives(&Account::new("belayer-pod-recreation", "u-2")));
        let none = json!({ "metadata": { "ownerReferences": null }, "data": null });
        serde_json::from_value::<GateObject>(none).unwrap();
    }

    #[test]
    fn the_manifest_is_what_the_binary_prints() {
        let manifest = include_str!("../../../../deploy/manifests/crd-gate.yaml");
        let (_, manifest) = manifest.split_once(".yaml\n").unwrap();
        assert_eq!(manifest.trim_end(), CRD.trim_end());
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
            None,
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
