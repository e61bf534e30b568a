//! Series that exist from the start: Prometheus cannot see an increase in a series that begins
//! with its first event. The example of [`Controller`](crate::Controller) has no metrics of its
//! own.

use belayer_metrics::{Known, KnownValues};

use super::informer_handle::{InformerHandle, WorkerGroup};

/// A type of live query and its possible answers. An argument of
/// [`of_component`], with which a
/// [`Controller`](crate::Controller) names its metrics.
pub type Query = (&'static str, &'static [&'static str]);

/// Whether an owner exists.
pub const OWNER: Query = ("owner", &["present", "gone", "unknown", "error"]);

/// Whether a namespace exists.
pub const NAMESPACE: Query = ("namespace", &["present", "gone", "error"]);

/// The series of a component: its releases by evidence, and the answers to its queries. A
/// [`Controller`](crate::Controller) passes it to the context when it joins.
pub fn of_component(
    name: &'static str,
    evidence: impl Iterator<Item = &'static str>,
    queries: &[Query],
) {
    KnownValues::new()
        .with(Known::Controller, [name])
        .with(Known::Evidence, evidence)
        .write_zeros();
    for (query, answers) in queries {
        KnownValues::new()
            .with(Known::Query, [*query])
            .with(Known::Answer, answers.iter().copied())
            .write_zeros();
    }
}

/// The series of informers and of queues. Informers are labelled by kind, such as `Pod`. The
/// program calls it for all that its [`Controller`](crate::Controller)s have registered.
pub fn of_work<'a>(
    informers: impl Iterator<Item = &'a InformerHandle>,
    worker_groups: &[WorkerGroup],
) {
    KnownValues::new()
        .with(Known::Kind, informers.map(InformerHandle::label))
        .with(Known::Queue, worker_groups.iter().map(|group| group.name))
        .write_zeros();
}
