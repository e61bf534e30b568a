//! Reports that a gate closed or that unselected pods stay held: by a log line, and by an Event on the gate,
//! because it concerns many pods.

use std::sync::Arc;

use belayer_core::events::Regarding;
use belayer_core::object::ObjectKey;
use belayer_core::words::one_or_many;
use belayer_holds::decision::Notice;
use belayer_holds::names;

use super::PeriodicTask;
use crate::backlog::{Limits, MAX_CLOSED};
use crate::held_objects::ActiveLimits;
use crate::snapshot::BacklogLimit;

/// Maximum number of namespaces reported at once; the gate and `/debug/holds` name all of them.
const REPORTED: usize = 10;

impl PeriodicTask {
    /// Reports the changes since the last tick.
    pub(super) async fn report_changes(&self, now: &ActiveLimits) {
        let notices = self.notices(now);
        if notices.is_empty() {
            return;
        }
        for notice in &notices {
            tracing::warn!(reason = notice.reason, "{}", notice.message);
        }
        let Ok(gate) = self.gate.read().await else {
            return;
        };
        let regarding = Regarding {
            resource: belayer_holds::gate::resource(),
            key: self.gate.key().clone(),
            uid: gate.uid(),
        };
        for notice in &notices {
            self.events.record(&regarding, notice);
        }
    }

    fn notices(&self, now: &ActiveLimits) -> Vec<Notice> {
        let mut notices = Vec::new();
        let held_objects = self.finalizer.held_objects();
        let limits = held_objects.limits();
        match (self.last.backlog, now.backlog) {
            (BacklogLimit::NotReached, BacklogLimit::Reached) => {
                notices.push(all_closed(limits, now, held_objects.backlog()));
            }
            (BacklogLimit::Reached, BacklogLimit::NotReached) => {
                tracing::info!("the backlog is below its limit: holds are added again");
            }
            _ => {}
        }
        let closed = now.closed.iter();
        let new = closed.filter(|(name, _)| !self.last.closed.contains_key(*name));
        for (namespace, waiting) in new.take(REPORTED) {
            let unreadable = self.finalizer.unreadable_in(namespace);
            notices.push(closed_in(
                namespace,
                *waiting,
                limits,
                now.backlog,
                &unreadable,
            ));
        }
        for namespace in self.last.closed.keys() {
            if !now.closed.contains_key(namespace) {
                tracing::info!(%namespace, "the backlog of the namespace is below its limit: holds are added again");
            }
        }
        let new = now.kept.new_since(&self.last.kept).into_iter();
        notices.extend(new.map(|(place, unselected, held)| kept(&place, unselected, held)));
        notices
    }
}

/// If a new leader found the gate closed, the current number may be lower than the limit.
fn all_closed(limits: Limits, now: &ActiveLimits, waiting: usize) -> Notice {
    let closed = match now.closed.len() {
        0 => String::new(),
        1 => " (1 namespace is closed by its own backlog)".to_owned(),
        n => format!(" ({n} namespaces are closed by their own backlog)"),
    };
    let or_namespaces = if now.closed.len() >= MAX_CLOSED {
        format!(", or with more than {MAX_CLOSED} closed namespaces,")
    } else {
        String::new()
    };
    Notice::warning(
        "BacklogGateClosed",
        format!(
            "no hold is added to any pod: the backlog limit is reached. It is reached above {} held pods that are being \
             deleted, of which each namespace counts for at most {},{or_namespaces} until there are fewer than {}; {} \
             now{closed}. `belayer status` names the namespaces, `belayer explain pod/NAME` shows what a pod waits for",
            limits.cluster,
            limits.namespace,
            Limits::opens_below(limits.cluster),
            one_or_many(waiting as u64, "counts", "count"),
        ),
    )
}

/// Names the pods whose owner's status cannot be read: their consumer cannot release them.
fn closed_in(
    namespace: &str,
    waiting: usize,
    limits: Limits,
    everywhere: BacklogLimit,
    unreadable: &[(ObjectKey, Arc<str>)],
) -> Notice {
    let unreadable = match unreadable {
        [] => String::new(),
        [(pod, why), others @ ..] => format!(
            "; the owner's status cannot be read for {} of them, such as {pod}: {why}",
            others.len() + 1
        ),
    };
    let others = match everywhere {
        BacklogLimit::Reached => "",
        BacklogLimit::NotReached | BacklogLimit::ReachedInNamespace => {
            " Other namespaces are not affected."
        }
    };
    Notice::warning(
        "BacklogNamespaceClosed",
        format!(
            "no hold is added to pods of namespace {namespace}: its backlog limit is reached. It is reached above {} held \
             pods that are being deleted, until there are fewer than {}; {} there now{unreadable}.{others} `belayer explain pod/NAME \
             -n {namespace}` shows what a pod waits for",
            limits.namespace,
            Limits::opens_below(limits.namespace),
            one_or_many(waiting as u64, "is", "are"),
        ),
    )
}

fn kept(place: &str, unselected: usize, held: usize) -> Notice {
    Notice::warning(
        names::HELD_BACK,
        format!(
            "no profile selects {unselected} of {held} held pods {place} any more; they are kept until there is other \
             evidence, because that many at once look like a mistyped selector, or an admission policy that selects \
             more than the profiles (`belayer check` compares them). If the change was intended, {}",
            names::RELEASE_UNSELECTED
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_names_the_way_out() {
        let text = format!("{:?}", kept("in namespace ci", 30, 40));
        // Without the configuration, the default one would decide what is released.
        assert!(
            text.contains("`belayer drain --unselected --config FILE` releases them"),
            "{text}"
        );
    }
}
