//! Scenarios of other providers, with Belayer as pods of the shipped manifests.

use anyhow::{Result, ensure};

use crate::harness::{Installed, Scenario, Sharing};
use crate::scenarios::all;

/// Scenarios whose pods are bound to no node, so that no kubelet runs them.
const GROUPS: [&str; 2] = ["row-", "workflow-"];

/// The first reads a metric of the process. The second creates pods until its workflow is removed, which waits for these
/// pods: the busier the machine, the longer that takes.
const NOT_AS_PODS: [&str; 2] = ["row-14-too-late", "workflow-deleted-amid-creation"];

fn chosen() -> Vec<Scenario> {
    let in_group = |name: &str| GROUPS.iter().any(|group| name.starts_with(group));
    let mut scenarios = all();
    scenarios.retain(|scenario| {
        scenario.sharing() == Sharing::Shared
            && in_group(scenario.name())
            && !NOT_AS_PODS.contains(&scenario.name())
    });
    scenarios
}

pub(super) async fn as_pods(belayer: Installed) -> Result<()> {
    let scenarios = chosen();
    belayer.run(&scenarios).await?;
    belayer
        .cluster
        .note(format!("{} shared scenarios", scenarios.len()));
    for replica in belayer.replicas().await? {
        let status = &replica.data["status"]["containerStatuses"][0];
        ensure!(status["restartCount"] == 0, "{status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dozen_is_chosen() {
        let names: Vec<_> = chosen().iter().map(Scenario::name).collect();
        assert!(names.len() > 12, "{names:?}");
    }
}
