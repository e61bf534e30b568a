//! The invariant of leader election.

use belayer_checker::BELAYER;
use belayer_sandbox::Write;

/// The writes of replicas while another replica held the Lease.
pub(crate) fn written_by_others(writes: &[Write]) -> Vec<String> {
    let mut leader = None;
    let mut broken = Vec::new();
    for write in writes.iter().filter(|write| write.changed()) {
        if write.resource.resource == "leases" {
            leader = write.object.as_ref().and_then(|lease| {
                let holder = lease.pointer("/spec/holderIdentity")?.as_str()?;
                let (replica, _) = holder.strip_prefix("belayer-")?.split_once('_')?;
                replica.parse::<usize>().ok()
            });
            continue;
        }
        let writer = write.actor.as_str().strip_prefix(BELAYER);
        let writer = writer.and_then(|instance| instance.strip_prefix('/')?.parse::<usize>().ok());
        if let (Some(writer), Some(leader)) = (writer, leader)
            && writer != leader
        {
            broken.push(format!(
                "LEADER: replica {leader} led when replica {writer} wrote: {}",
                write.summary()
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use belayer_sandbox::{Actor, Gvr, Sandbox, WriteOptions};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::the_leader(1, 0)]
    #[case::another(2, 1)]
    fn only_the_leader_may_write(#[case] writer: usize, #[case] broken: usize) {
        let sandbox = Sandbox::default();
        let create = |actor: &str, gvr: &Gvr, object: Value| {
            let (actor, options) = (Actor::new(actor), WriteOptions::default());
            let created = sandbox
                .cluster()
                .create(&actor, gvr, Some("default"), object, &options);
            created.expect("a valid object");
        };
        let event = |name: &str| {
            json!({
                "metadata": { "name": name },
                "involvedObject": { "namespace": "default" },
            })
        };
        // Before there is a leader.
        create(&format!("{BELAYER}/2"), &Gvr::EVENTS, event("first"));
        let lease = json!({
            "metadata": { "name": "belayer" },
            "spec": { "holderIdentity": "belayer-1_a3" },
        });
        create("belayer-election/1", &Gvr::LEASES, lease);
        create(
            &format!("{BELAYER}/{writer}"),
            &Gvr::EVENTS,
            event("second"),
        );
        create("user", &Gvr::EVENTS, event("third"));
        let found = written_by_others(&sandbox.recorder().writes());
        assert_eq!(found.len(), broken, "{found:?}");
    }
}
