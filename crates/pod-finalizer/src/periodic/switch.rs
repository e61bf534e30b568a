//! The desired content of the gate: a pure function of its current content and of the closed gates.
//!
//! Every value shows which writer set it, and only that writer reverts it: values of an admin stay.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use belayer_holds::gate::{Change, GateObject};
use belayer_holds::names::{
    GATE_BACKLOG, GATE_BACKLOG_CLOSED, GATE_CLOSED_BY_BACKLOG, GATE_CLOSED_PREFIX,
};

use crate::profile::Mode;
use crate::snapshot::BacklogLimit;

/// Key of the gate that the admission policy reads: `on`; any other value means off. The backlog writes
/// `off` together with [`GATE_BACKLOG`]; an `off` without that was set by an admin, and Belayer does not revert it.
pub(crate) const GATE_KEY: &str = "hold";

/// Which switches of the gate should be off because of the backlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The backlog limit of the whole cluster.
    pub(super) backlog: BacklogLimit,
    /// The closed namespaces.
    pub(super) closed: BTreeSet<Arc<str>>,
}

impl Wanted {
    /// The keys to change so that the policy follows the profiles and the backlog.
    pub(super) fn change(&self, current: &GateObject, profiles: Mode) -> Change {
        let keys = self.switch(current, profiles).iter();
        let mut change: Change = keys
            .map(|(key, value)| ((*key).to_owned(), value.map(Cow::Borrowed)))
            .collect();
        let closed = current.closed_by_backlog();
        let key = |namespace: &Arc<str>| format!("{GATE_CLOSED_PREFIX}{namespace}");
        change.extend(
            closed
                .difference(&self.closed)
                .map(|name| (key(name), None)),
        );
        let new = self.closed.difference(&closed).map(key);
        // A namespace that an admin has closed already keeps that value.
        let new = new.filter(|key| current.get(key).is_none());
        change.extend(new.map(|key| (key, Some(Cow::Borrowed(GATE_CLOSED_BY_BACKLOG)))));
        change
    }

    fn switch(
        &self,
        current: &GateObject,
        profiles: Mode,
    ) -> &'static [(&'static str, Option<&'static str>)] {
        match (profiles, current.get(GATE_KEY), self.backlog) {
            (Mode::Enforce, Some("on"), BacklogLimit::Reached) => &[
                (GATE_KEY, Some("off")),
                (GATE_BACKLOG, Some(GATE_BACKLOG_CLOSED)),
            ],
            (Mode::Observe, ..) | (Mode::Enforce, _, BacklogLimit::Reached) => &[],
            _ if !current.is_closed_by_backlog() => &[],
            (Mode::Enforce, Some("off"), _) => &[(GATE_KEY, Some("on")), (GATE_BACKLOG, None)],
            // It was turned off with another value in the meantime.
            (Mode::Enforce, ..) => &[(GATE_BACKLOG, None)],
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::backlog::Limits;
    use crate::held_objects::HeldPods;
    use crate::profile::MaxUnselected;

    fn object(data: &[(&str, &str)]) -> GateObject {
        let data: Value = data.iter().copied().collect();
        serde_json::from_value(json!({ "data": data })).unwrap()
    }

    fn change(
        data: &[(&str, &str)],
        backlog: BacklogLimit,
        closed: &[&str],
        mode: Mode,
    ) -> Option<Value> {
        let wanted = Wanted {
            backlog,
            closed: closed.iter().map(|name| Arc::from(*name)).collect(),
        };
        let change = wanted.change(&object(data), mode);
        (!change.is_empty()).then(|| json!(change))
    }

    #[rstest]
    #[case::the_backlog_closes(&[("hold", "on")], BacklogLimit::Reached, Some(json!({"hold": "off", "backlog": "closed"})))]
    #[case::it_is_closed(&[("hold", "off"), ("backlog", "closed")], BacklogLimit::Reached, None)]
    #[case::it_opens_again(&[("hold", "off"), ("backlog", "closed")], BacklogLimit::NotReached, Some(json!({"hold": "on", "backlog": null})))]
    #[case::it_is_open(&[("hold", "on")], BacklogLimit::NotReached, None)]
    #[case::an_admins_off_stays(&[("hold", "off")], BacklogLimit::NotReached, None)]
    #[case::nor_does_it_become_the_backlogs(&[("hold", "off")], BacklogLimit::Reached, None)]
    #[case::a_component_that_was_switched_off(&[("hold", "switched-off"), ("backlog", "closed")], BacklogLimit::NotReached, Some(json!({"backlog": null})))]
    #[case::an_admin_took_the_switch_out(&[], BacklogLimit::NotReached, None)]
    fn the_policys_switch_follows_the_backlog_and_obeys_an_admin(
        #[case] data: &[(&str, &str)],
        #[case] backlog: BacklogLimit,
        #[case] expected: Option<Value>,
    ) {
        assert_eq!(change(data, backlog, &[], Mode::Enforce), expected);
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
            assert_eq!(
                change(data, BacklogLimit::NotReached, closed, mode),
                expected
            );
        }
    }

    /// `belayer_drain::follow` turns it off: the only one that knows whether it may be turned on again.
    #[rstest]
    #[case::on("on")]
    #[case::off_for_another_reason("switched-off")]
    fn the_policys_switch_is_not_of_the_backlog_while_all_profiles_observe(
        #[case] hold: &str,
        #[values(BacklogLimit::NotReached, BacklogLimit::Reached)] backlog: BacklogLimit,
    ) {
        assert_eq!(change(&[("hold", hold)], backlog, &[], Mode::Observe), None);
    }

    #[rstest]
    #[case::as_old_builds_wrote_it(&[("hold", "on"), ("mode", "normal")], BacklogLimit::NotReached)]
    #[case::everything(&[("backlog", "closed"), ("closed.a", "backlog")], BacklogLimit::Reached)]
    #[case::it(&[("closed.a", "backlog")], BacklogLimit::ReachedInNamespace)]
    #[case::another(&[("closed.ab", "backlog")], BacklogLimit::NotReached)]
    #[case::by_an_admin_for_the_policy_alone(&[("closed.a", "maintenance")], BacklogLimit::NotReached)]
    fn t4_the_gate_of_a_namespace(#[case] data: &[(&str, &str)], #[case] expected: BacklogLimit) {
        let held_objects = HeldPods::new(MaxUnselected::default(), Limits::of(100));
        held_objects.adopt_closed(&object(data));
        assert_eq!(held_objects.backlog_limit("a"), expected);
    }
}
