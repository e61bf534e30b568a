//! Steps that a component takes itself: what it is given, how they end, and how the step's types are put aside.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use belayer_core::executor::Executor;
use belayer_core::freshness::OwnWrites;
use belayer_core::http::RequestError;
use belayer_core::object::{ObjectKey, ResourceVersion};
use belayer_core::workqueue::Backoff;

/// How a step ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// It is done. An event shows what came of it.
    Done,
    /// It is done, or will never be, and the component remembers that: it is decided again at once.
    Settled,
    /// It cannot be done yet, or what it depends on is not as it was seen: it is decided again after this time.
    Later(Duration),
    /// It was refused, or failed: it is decided again after a delay drawn from this curve.
    Retry(Backoff),
}

/// What a step is taken with.
pub struct StepContext<'a> {
    /// The key that is worked on.
    pub key: &'a ObjectKey,
    /// Sends the step's requests. It waits for no token: the step has begun.
    pub executor: &'a Arc<Executor>,
    pub(super) own: &'a OwnWrites,
}

impl StepContext<'_> {
    /// Notes the version of a write to the object of the key: it is not worked on again before the store has
    /// seen that.
    pub fn wrote(&self, version: ResourceVersion) {
        self.own.wrote(self.key, version);
    }
}

/// A step with all that its component needs for it.
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
