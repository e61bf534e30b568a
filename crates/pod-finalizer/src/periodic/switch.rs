//! The desired content of the gate ConfigMap: a pure function of its current content and of the closed gates.
//!
//! Every value shows which writer set it, and only that writer reverts it: values of an admin stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use belayer_holds::names::{
    GATE_BACKLOG, GATE_BACKLOG_CLOSED, GATE_CLOSED_BY_BACKLOG, GATE_CLOSED_PREFIX,
};

use crate::profile::Mode;
use crate::snapshot::Gate;

/// Key of the gate ConfigMap that the admission policy reads: `on`; any other value means off. The backlog writes
/// `off` together with [`GATE_BACKLOG`]; an `off` without that was set by an admin, and Belayer does not revert it.
pub const GATE_KEY: &str = "hold";

/// The value of [`GATE_KEY`] while all profiles only observe: then the policy must not write to pods either.
pub const OBSERVING: &str = "observing";

/// The gate ConfigMap, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GateConfigMap {
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) data: BTreeMap<String, String>,
}

/// What the ConfigMap should contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The backlog gate of the whole cluster.
    pub(super) gate: Gate,
    /// The closed namespaces.
    pub(super) closed: BTreeSet<Arc<str>>,
}

impl GateConfigMap {
    /// The namespaces whose gate is closed because of their backlog.
    pub(crate) fn closed(&self) -> BTreeSet<Arc<str>> {
        let ours = self
            .data
            .iter()
            .filter(|(_, value)| *value == GATE_CLOSED_BY_BACKLOG);
        ours.filter_map(|(key, _)| key.strip_prefix(GATE_CLOSED_PREFIX))
            .map(Arc::from)
            .collect()
    }

    /// Whether the backlog closed the gate of the whole cluster.
    pub(crate) fn gate(&self) -> Gate {
        match self.data.get(GATE_BACKLOG).map(String::as_str) {
            Some(GATE_BACKLOG_CLOSED) => Gate::Closed,
            _ => Gate::Open,
        }
    }

    /// The keys to change so that the policy follows the profiles and the backlog; `None` if none.
    pub(super) fn switched(&self, wanted: &Wanted, profiles: Mode) -> Option<Value> {
        let mut change = Map::new();
        if let Some(switch) = self.switch(wanted.gate, profiles) {
            change.extend(switch);
        }
        let now = self.closed();
        for name in now.difference(&wanted.closed) {
            change.insert(format!("{GATE_CLOSED_PREFIX}{name}"), Value::Null);
        }
        for name in wanted.closed.difference(&now) {
            let key = format!("{GATE_CLOSED_PREFIX}{name}");
            // An admin has closed it already: that value stays.
            if !self.data.contains_key(&key) {
                change.insert(key, GATE_CLOSED_BY_BACKLOG.into());
            }
        }
        (!change.is_empty()).then_some(Value::Object(change))
    }

    fn switch(&self, gate: Gate, profiles: Mode) -> Option<Map<String, Value>> {
        let value = |key: &str| self.data.get(key).map(String::as_str);
        let (hold, backlog) = (value(GATE_KEY), value(GATE_BACKLOG));
        let change = match (profiles, hold, gate) {
            (Mode::Observe, Some("on"), _) => json!({ GATE_KEY: OBSERVING }),
            (Mode::Enforce, Some(OBSERVING), _) => json!({ GATE_KEY: "on" }),
            (Mode::Enforce, Some("on"), Gate::Closed) => {
                json!({ GATE_KEY: "off", GATE_BACKLOG: GATE_BACKLOG_CLOSED })
            }
            (Mode::Observe, ..) | (Mode::Enforce, _, Gate::Closed) => return None,
            _ if backlog != Some(GATE_BACKLOG_CLOSED) => return None,
            (Mode::Enforce, Some("off"), _) => json!({ GATE_KEY: "on", GATE_BACKLOG: null }),
            // It was turned off with another value in the meantime.
            (Mode::Enforce, ..) => json!({ GATE_BACKLOG: null }),
        };
        match change {
            Value::Object(change) => Some(change),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::backlog::Limits;
    use crate::held_objects::HeldObjects;
    use crate::profile::MaxUnselected;

    fn object(data: &[(&str, &str)]) -> GateConfigMap {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        GateConfigMap {
            data: data.iter().map(own).collect(),
            ..GateConfigMap::default()
        }
    }

    fn wanted(gate: Gate, closed: &[&str]) -> Wanted {
        Wanted {
            gate,
            closed: closed.iter().map(|name| Arc::from(*name)).collect(),
        }
    }

    #[rstest]
    #[case::the_backlog_closes(&[("hold", "on")], Gate::Closed, Some(json!({"hold": "off", "backlog": "closed"})))]
    #[case::it_is_closed(&[("hold", "off"), ("backlog", "closed")], Gate::Closed, None)]
    #[case::it_opens_again(&[("hold", "off"), ("backlog", "closed")], Gate::Open, Some(json!({"hold": "on", "backlog": null})))]
    #[case::it_is_open(&[("hold", "on")], Gate::Open, None)]
    #[case::an_admins_off_stays(&[("hold", "off")], Gate::Open, None)]
    #[case::nor_does_it_become_the_backlogs(&[("hold", "off")], Gate::Closed, None)]
    #[case::a_component_that_was_switched_off(&[("hold", "switched-off"), ("backlog", "closed")], Gate::Open, Some(json!({"backlog": null})))]
    #[case::an_admin_took_the_switch_out(&[], Gate::Open, None)]
    fn the_policys_switch_follows_the_backlog_and_obeys_an_admin(
        #[case] data: &[(&str, &str)],
        #[case] gate: Gate,
        #[case] expected: Option<Value>,
    ) {
        let change = object(data).switched(&wanted(gate, &[]), Mode::Enforce);
        assert_eq!(change, expected);
    }

    #[rstest]
    #[case::it_closes(&[], &["a"], Some(json!({"closed.a": "backlog"})))]
    #[case::it_is_closed(&[("closed.a", "backlog")], &["a"], None)]
    #[case::it_opens(&[("closed.a", "backlog")], &[], Some(json!({"closed.a": null})))]
    #[case::one_for_another(&[("closed.a", "backlog")], &["b"], Some(json!({"closed.a": null, "closed.b": "backlog"})))]
    #[case::an_admins_stays_closed(&[("closed.a", "maintenance")], &[], None)]
    #[case::and_stays_the_admins(&[("closed.a", "maintenance")], &["a"], None)]
    #[case::what_else_is_there_stays(&[("mode", "normal"), ("holdClaims", "off")], &[], None)]
    fn t4_a_closed_namespace_is_a_key_of_its_own(
        #[case] data: &[(&str, &str)],
        #[case] closed: &[&str],
        #[case] expected: Option<Value>,
    ) {
        for mode in [Mode::Enforce, Mode::Observe] {
            let change = object(data).switched(&wanted(Gate::Open, closed), mode);
            assert_eq!(change, expected);
        }
    }

    #[rstest]
    #[case::no_finalizer_is_added_while_all_observe(Mode::Observe, "on", Some("observing"))]
    #[case::observing_is_written_once(Mode::Observe, "observing", None)]
    #[case::an_admins_off_stays(Mode::Observe, "off", None)]
    #[case::enforcing_adds_finalizers_again(Mode::Enforce, "observing", Some("on"))]
    fn the_policys_switch_follows_the_profiles(
        #[case] profiles: Mode,
        #[case] hold: &str,
        #[case] expected: Option<&str>,
    ) {
        let written = object(&[("hold", hold)]).switched(&wanted(Gate::Open, &[]), profiles);
        assert_eq!(written, expected.map(|word| json!({ "hold": word })));
    }

    #[rstest]
    #[case::as_old_builds_wrote_it(&[("hold", "on"), ("mode", "normal")], Gate::Open)]
    #[case::everything(&[("backlog", "closed"), ("closed.a", "backlog")], Gate::Closed)]
    #[case::it(&[("closed.a", "backlog")], Gate::NamespaceClosed)]
    #[case::another(&[("closed.ab", "backlog")], Gate::Open)]
    #[case::by_an_admin_for_the_policy_alone(&[("closed.a", "maintenance")], Gate::Open)]
    fn t4_the_gate_of_a_namespace(#[case] data: &[(&str, &str)], #[case] expected: Gate) {
        let held_objects = HeldObjects::new(MaxUnselected::default(), Limits::of(100));
        held_objects.adopt_closed(object(data).closed(), object(data).gate());
        assert_eq!(held_objects.gate("a"), expected);
    }
}
