//! Steps that a component executes itself: their context, their result, and their type-erased form.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use belayer_core::executor::Executor;
use belayer_core::freshness::OwnWrites;
use belayer_core::http::RequestError;
use belayer_core::object::{ObjectKey, ResourceVersion};
use belayer_core::workqueue::Backoff;

/// The result of a step that did not fail. [`Component::step`](crate::runner::Component::step)
/// returns it; the [example](crate::runner) has no steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// It is done. A watch event shows the result.
    Done,
    /// It is done, or impossible, and the component has stored that: the decision is repeated at once.
    Settled,
    /// It cannot be done yet, or its input is outdated: the decision is repeated after this time.
    Later(Duration),
    /// It was rejected or failed: the decision is repeated after a delay by this backoff.
    Retry(Backoff),
}

/// The context of a step. [`Component::step`](crate::runner::Component::step) receives it; the
/// [example](crate::runner) has no steps.
pub struct StepContext<'a> {
    /// The key that is processed.
    pub key: &'a ObjectKey,
    /// Sends the step's requests. It does not wait for a rate limit token: the step already has one.
    pub executor: &'a Arc<Executor>,
    pub(super) own: &'a OwnWrites,
}

impl StepContext<'_> {
    /// Records the version of a write to the object of the key: the key is not processed again before the store has
    /// that version.
    pub fn wrote(&self, version: ResourceVersion) {
        self.own.wrote(self.key, version);
    }
}

/// A type-erased step.
pub(super) struct AnyStep(Take);

type Take = Box<
    dyn for<'a> FnOnce(&'a StepContext<'a>) -> BoxFuture<'a, Result<Stepped, RequestError>> + Send,
>;

impl AnyStep {
    pub(super) fn new(
        take: impl for<'a> FnOnce(&'a StepContext<'a>) -> BoxFuture<'a, Result<Stepped, RequestError>>
        + Send
        + 'static,
    ) -> Self {
        Self(Box::new(take))
    }

    pub(super) async fn take(self, context: &StepContext<'_>) -> Result<Stepped, RequestError> {
        (self.0)(context).await
    }

    #[cfg(test)]
    pub(super) fn scripted() -> Self {
        use futures::FutureExt as _;
        Self(Box::new(|_| std::future::ready(Ok(Stepped::Done)).boxed()))
    }
}

impl fmt::Debug for AnyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyStep")
    }
}
