//! Finds the smallest subset of a plan's events that still violates an invariant.

use std::collections::BTreeSet;

use crate::plan::Plan;
use crate::run::run;

/// The smallest plan found that still fails. Removes ever smaller groups of events as long as the run fails
/// without them.
pub(crate) fn shrink(plan: &Plan) -> Plan {
    let mut kept = plan.numbers();
    let mut group = kept.len().div_ceil(2);
    while group > 0 && !kept.is_empty() {
        let before = kept.len();
        let all: Vec<usize> = kept.iter().copied().collect();
        for removed in all.chunks(group) {
            let fewer: BTreeSet<usize> = kept
                .iter()
                .copied()
                .filter(|number| !removed.contains(number))
                .collect();
            if !run(&plan.clone().only(&fewer)).violations.is_empty() {
                kept = fewer;
            }
        }
        if kept.len() == before || group > 1 {
            group = if group == 1 {
                0
            } else {
                group.div_ceil(2).min(group - 1)
            };
        }
    }
    plan.clone().only(&kept)
}
