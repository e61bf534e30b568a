//! The list of scenarios.

mod admission;
mod argo;
mod argo_deleted;
mod argo_lost;
mod argo_move;
mod argo_nodes;
mod argo_options;
mod argo_workflows;
mod chart;
mod check;
mod crash;
mod dashboard;
mod decision_table;
mod downtime;
mod drain;
mod drain_running;
mod election;
mod faults;
mod foreign;
mod gate;
mod gate_opening;
mod hostile_account;
mod hostile_backlog;
mod hostile_breaker;
mod hostile_large_pods;
mod hostile_marks;
mod hostile_metrics;
mod hostile_names;
mod hostile_status;
mod identity;
mod install;
mod installation;
mod kubectl;
mod kubelet;
mod kubernetes_bugs;
mod lint;
mod node_agent;
mod other_owners;
mod other_owners_kinds;
mod others;
mod outcomes;
mod owners;
mod peers;
mod permissions;
mod pvcs;
mod pvcs_advised;
mod pvcs_replacing;
mod quiet;
mod real;
mod recreation;
mod recreation_beside;
mod recreation_load;
mod recreation_metadata;
mod recreation_namespace;
mod recreation_nodes;
mod recreation_server;
mod reload;
mod selector;
mod size;
mod start;
mod status_page;
mod stuck;
mod uninstall;
mod upgrade;
mod users;
mod wire;
mod workflows;
mod workflows_many;

use crate::harness::Scenario;

/// All scenarios, in the order in which `--list` prints them.
pub fn all() -> Vec<Scenario> {
    [
        decision_table::scenarios(),
        identity::scenarios(),
        foreign::scenarios(),
        owners::scenarios(),
        workflows::scenarios(),
        workflows_many::scenarios(),
        argo::scenarios(),
        argo_deleted::scenarios(),
        argo_lost::scenarios(),
        argo_options::scenarios(),
        argo_move::scenarios(),
        argo_nodes::scenarios(),
        argo_workflows::scenarios(),
        other_owners::scenarios(),
        outcomes::scenarios(),
        downtime::scenarios(),
        crash::scenarios(),
        faults::scenarios(),
        size::scenarios(),
        gate::scenarios(),
        gate_opening::scenarios(),
        hostile_backlog::scenarios(),
        hostile_breaker::scenarios(),
        hostile_large_pods::scenarios(),
        hostile_marks::scenarios(),
        hostile_metrics::scenarios(),
        selector::scenarios(),
        quiet::scenarios(),
        start::scenarios(),
        election::scenarios(),
        reload::scenarios(),
        permissions::scenarios(),
        stuck::scenarios(),
        check::scenarios(),
        install::scenarios(),
        users::scenarios(),
        chart::scenarios(),
        admission::scenarios(),
        kubelet::scenarios(),
        kubernetes_bugs::scenarios(),
        real::scenarios(),
        node_agent::scenarios(),
        kubectl::scenarios(),
        peers::scenarios(),
        others::scenarios(),
        lint::scenarios(),
        dashboard::scenarios(),
        status_page::scenarios(),
        wire::scenarios(),
        pvcs::scenarios(),
        pvcs_advised::scenarios(),
        pvcs_replacing::scenarios(),
        drain::scenarios(),
        drain_running::scenarios(),
        uninstall::scenarios(),
        upgrade::scenarios(),
        recreation::scenarios(),
        recreation_beside::scenarios(),
        recreation_load::scenarios(),
        recreation_metadata::scenarios(),
        recreation_namespace::scenarios(),
        recreation_nodes::scenarios(),
        recreation_server::scenarios(),
        hostile_account::scenarios(),
        hostile_names::scenarios(),
        hostile_status::scenarios(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Each name is also used as the name of a namespace.
    #[test]
    fn names_are_unique_and_fit_into_a_namespace() {
        let mut seen = BTreeSet::new();
        for scenario in super::all() {
            let name = scenario.name();
            assert!(seen.insert(name), "duplicate name {name}");
            assert!(name.len() <= 40, "{name} is too long");
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "{name}"
            );
        }
    }
}
