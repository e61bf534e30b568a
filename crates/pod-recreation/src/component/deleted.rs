//! The records whose deletion this process has seen. A create that was in flight may complete after it.

use std::collections::VecDeque;
use std::sync::Arc;

use belayer_core::object::Uid;

use super::attempts_of;
use crate::record::Record;

/// How many are remembered. The API server ends a request after a minute, so this bounds the deletions of one minute
/// only.
const LIMIT: usize = 1_024;

/// The last records that were deleted, the oldest first.
#[derive(Debug, Default)]
pub(super) struct DeletedRecords(VecDeque<DeletedRecord>);

#[derive(Debug)]
struct DeletedRecord {
    /// Its namespace and UID.
    id: (Arc<str>, Uid),
    /// The pods that its last version named.
    named: [Option<Uid>; 2],
}

impl DeletedRecords {
    /// Stores the last version of a deleted record.
    pub(super) fn note(&mut self, last: &Record) {
        if self.0.len() == LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(DeletedRecord {
            id: attempts_of(&last.meta.key, &last.meta.uid),
            named: last.named().map(|uid| uid.map(Uid::new)),
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the record was deleted, and its last version did not name `pod`. False if that is unknown.
    pub(super) fn did_not_name(&self, record: &(Arc<str>, Uid), pod: &Uid) -> bool {
        let mut known = self.0.iter().rev();
        known
            .find(|deleted| deleted.id == *record)
            .is_some_and(|deleted| deleted.named.iter().flatten().all(|named| named != pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::tests::case;

    #[test]
    fn only_the_last_records_are_remembered() {
        let mut deleted = DeletedRecords::default();
        let mut record = case::record(None);
        record.status.pod_uid = Some("u-2".into());
        for n in 0..=LIMIT {
            record.meta.uid = Uid::new(format!("r-{n}"));
            deleted.note(&record);
        }
        let id = |n: usize| attempts_of(&record.meta.key, &Uid::new(format!("r-{n}")));
        let did_not_name = |n, pod| deleted.did_not_name(&id(n), &Uid::new(pod));
        assert_eq!(deleted.0.len(), LIMIT);
        assert!(!did_not_name(0, "u-3"), "it is not known any more");
        assert!(did_not_name(1, "u-3"));
        assert!(!did_not_name(1, "u-2"));
    }
}
