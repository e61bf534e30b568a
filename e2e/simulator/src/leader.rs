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
