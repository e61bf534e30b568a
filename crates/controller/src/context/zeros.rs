//! Series that are there before anything happens: one that appears with its first event looks as if
//! nothing had happened before.

use belayer_metrics::{Known, KnownValues};

use super::feed::{InformerHandle, WorkerGroup};

/// What is asked live, and the answers that there are.
pub type Query = (&'static str, &'static [&'static str]);

/// Whether an owner is there.
pub const OWNER: Query = ("owner", &["present", "gone", "unknown", "error"]);

/// Whether a namespace is there.
pub const NAMESPACE: Query = ("namespace", &["present", "gone", "error"]);

/// Those of a component: its releases by evidence, and the answers to what it asks.
pub fn of_component(
    name: &'static str,
    evidence: impl Iterator<Item = &'static str>,
    questions: &[Query],
) {
    KnownValues::new()
        .with(Known::Controller, [name])
        .with(Known::Evidence, evidence)
        .write_zeros();
    for (question, answers) in questions {
        KnownValues::new()
            .with(Known::Question, [*question])
            .with(Known::Answer, answers.iter().copied())
            .write_zeros();
    }
}

/// Those of informers and of queues. Informers label theirs by kind, such as `Pod`.
pub fn of_work<'a>(feeds: impl Iterator<Item = &'a InformerHandle>, crews: &[WorkerGroup]) {
    KnownValues::new()
        .with(Known::Kind, feeds.map(InformerHandle::kind))
        .with(Known::Queue, crews.iter().map(|crew| crew.name))
        .write_zeros();
}
