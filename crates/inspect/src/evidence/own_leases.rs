//! Which Lease the leader of each of Belayer's controllers renews: two Deployments of Belayer have two Leases.

use std::collections::{BTreeMap, BTreeSet};

use belayer_holds::gate::GateObject;

use crate::explain::Belayer;
use crate::known_finalizers::Entry;
use crate::object::Terminating;
use crate::reader::{ReadResult, Reader};

/// Belayer's Leases, each as `namespace/name`. Empty if leader election is disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnLeases {
    /// By the configuration, for the components for which the gate names none.
    configured: Option<String>,
    /// By the gate, of each component.
    by_gate: BTreeMap<&'static str, String>,
}

impl OwnLeases {
    /// Reads the gate, if one of these objects has a finalizer that Belayer may remove.
    pub(super) async fn read(reader: &Reader, belayer: &Belayer, stuck: &[Terminating]) -> Self {
        if belayer.lease.is_none() || components(belayer, stuck).is_empty() {
            return Self::default();
        }
        let gate = match &belayer.gate {
            Some(key) => reader.object(&belayer_holds::gate::resource(), key).await,
            None => ReadResult::Absent,
        };
        Self::new(belayer, gate.found())
    }

    fn new(belayer: &Belayer, gate: Option<&GateObject>) -> Self {
        let named = belayer.switches.iter().filter_map(|(component, switch)| {
            let lease = gate?.lease_in_use(switch)?;
            Some((*component, lease.to_owned()))
        });
        Self {
            configured: belayer.lease.clone(),
            by_gate: named.collect(),
        }
    }

    /// The Leases of the components that may remove a finalizer of these objects.
    pub(super) fn to_read<'a>(
        &'a self,
        belayer: &'a Belayer,
        stuck: &'a [Terminating],
    ) -> impl Iterator<Item = String> {
        let components = components(belayer, stuck).into_iter();
        components.filter_map(|component| {
            let lease = self.of(component)?;
            Some(lease.to_owned())
        })
    }

    /// The Lease of a component's leader.
    pub(crate) fn of(&self, component: &str) -> Option<&str> {
        let by_gate = self.by_gate.get(component);
        by_gate.or(self.configured.as_ref()).map(String::as_str)
    }

    /// Whether the gate names it.
    pub(crate) fn is_named(&self, component: &str) -> bool {
        self.by_gate.contains_key(component)
    }

    /// The Leases of Belayer's other leaders, if the leader of a controller has this one.
    pub(crate) fn except(&self, own: Option<&str>) -> BTreeSet<&str> {
        let all = self.by_gate.values().chain(&self.configured);
        let all = all.map(String::as_str);
        all.filter(|lease| Some(*lease) != own).collect()
    }
}

/// The components that may remove a finalizer of these objects. By configuration, it may be another controller's.
fn components<'a>(belayer: &'a Belayer, stuck: &'a [Terminating]) -> BTreeSet<&'a str> {
    let finalizers: BTreeSet<&str> = stuck
        .iter()
        .flat_map(|object| object.finalizers.iter().map(String::as_str))
        .collect();
    let known = finalizers
        .iter()
        .filter_map(|name| belayer.known.find(name));
    let explainers = belayer.explainers.iter();
    let explained = explainers.filter(|one| one.holds.iter().any(|hold| finalizers.contains(hold)));
    known
        .filter_map(Entry::component)
        .chain(explained.map(|one| one.component))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const CONFIGURED: &str = "belayer-system/belayer";
    const APART: &str = "belayer-system/belayer-pod-recreation";

    fn belayer(lease: Option<&str>) -> Belayer {
        Belayer {
            lease: lease.map(str::to_owned),
            switches: [
                ("pod-finalizer", "hold"),
                ("pod-recreation", "holdRecreations"),
            ]
            .into(),
            ..Belayer::default()
        }
    }

    #[rstest]
    #[case::two_deployments("on", APART, APART)]
    #[case::a_single_deployment("on", CONFIGURED, CONFIGURED)]
    // The leader of the others removes the finalizers of a controller that is switched off.
    #[case::switched_off("switched-off", APART, CONFIGURED)]
    fn the_gate_names_the_lease_of_each_component(
        #[case] switch: &str,
        #[case] lease: &str,
        #[case] expected: &str,
    ) {
        let gate = json!({ "data": {
            "hold": "on", "lease.hold": CONFIGURED,
            "holdRecreations": switch, "lease.holdRecreations": lease,
        } });
        let gate: GateObject = serde_json::from_value(gate).unwrap();
        let leases = OwnLeases::new(&belayer(Some(CONFIGURED)), Some(&gate));
        assert_eq!(leases.of("pod-recreation"), Some(expected));
        assert_eq!(leases.of("pod-finalizer"), Some(CONFIGURED));
        // The gate has no key of this one.
        assert_eq!(leases.of("pvc-protection"), Some(CONFIGURED));
    }

    #[test]
    fn without_a_gate_the_configuration_names_the_only_lease() {
        let leases = OwnLeases::new(&belayer(Some(CONFIGURED)), None);
        assert_eq!(leases.of("pod-recreation"), Some(CONFIGURED));
        assert!(!leases.is_named("pod-recreation"));
        assert_eq!(leases.except(None), BTreeSet::from([CONFIGURED]));
        assert_eq!(leases.except(Some(CONFIGURED)), BTreeSet::new());
    }
}
