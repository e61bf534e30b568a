//! The interface between a component and a runner, and its type-erased form.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::step::{AnyStep, StepContext, Stepped};
use crate::decision::{Decision, Evidence, Missing, Notice, Release, Rule, Write};
use belayer_core::events::{Regarding, UNANSWERED};
use belayer_core::http::RequestError;
use belayer_core::informer::Stored;
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::ObjectKey;
use belayer_core::queries::Waiter;
use belayer_core::slim::Slim;
use belayer_core::workqueue::Priority;

/// The rules of one component for one kind.
///
/// `observe` gathers an owned snapshot without I/O, `decide` is a pure function of it: no clock,
/// no client, no async.
///
/// The [module's example](crate::runner) implements one.
pub trait Component<K: Slim>: Send + Sync + 'static {
    /// The input of a decision.
    type Snapshot: Debug + Send + Sync;
    /// Why a release is safe.
    type Evidence: Evidence;
    /// Its queries.
    type Query: Debug + Display + Send;
    /// What it executes itself for [`Write::Step`].
    type Step: Debug + Send + Sync;

    /// Name of the component, such as `pod-finalizer`: a metric label.
    fn name(&self) -> &'static str;

    /// Its finalizer.
    fn hold(&self) -> &'static str;

    /// The priority with which a change is processed; `None` for most changes, which are irrelevant. By default
    /// every new version of an object is processed.
    fn interest(&self, change: &Change<'_, K>) -> Option<Priority> {
        change.new.map(|_| Priority::Normal)
    }

    /// A snapshot of what stores and live answers show about `object`.
    fn observe(&self, object: &Stored<K>) -> Self::Snapshot;

    /// A snapshot for a key without an object in the store, if the component handles it: it may have to create the
    /// object. Only a step can be decided for it.
    fn observe_absent(&self, _key: &ObjectKey) -> Option<Self::Snapshot> {
        None
    }

    /// The decision for a snapshot.
    fn decide(
        snapshot: &Self::Snapshot,
        now: Timestamp,
    ) -> Decision<Self::Evidence, Self::Query, Self::Step>;

    /// Sends a query for `waiter`, which is enqueued once there is an answer.
    fn ask(&self, query: Self::Query, waiter: Waiter<'_>);

    /// The object of the decision's Events, if it is another one.
    fn regarding(&self, _snapshot: &Self::Snapshot) -> Option<Regarding> {
        None
    }

    /// Executes a step ([`Write::Step`]): at most one persistent write, and the reads for it. It must be idempotent
    /// and safe with an outdated snapshot.
    ///
    /// # Errors
    ///
    /// Those of its requests. The key is then requeued as with [`OnConflict::Requeue`](crate::conflict::OnConflict);
    /// a step that handles an error itself returns a [`Stepped`].
    fn step<'a>(
        &'a self,
        _object: Option<&'a Stored<K>>,
        _snapshot: &'a Self::Snapshot,
        _step: Self::Step,
        _context: &'a StepContext<'a>,
    ) -> BoxFuture<'a, Result<Stepped, RequestError>> {
        std::future::ready(Ok(Stepped::Done)).boxed()
    }
}

/// A change of one object.
/// [`Component::interest`] receives it.
///
/// ```
/// use belayer_core::{OwnerMeta, Priority};
/// use belayer_holds::runner::Change;
///
/// /// Only objects that are being deleted.
/// fn interest(change: &Change<'_, OwnerMeta>) -> Option<Priority> {
///     let new = change.new.filter(|new| new.object.meta.is_deleting());
///     new.map(|_| Priority::Release)
/// }
/// ```
#[derive(Debug)]
pub struct Change<'a, K> {
    /// The old version; `None` if there was none.
    pub old: Option<&'a Stored<K>>,
    /// The new version; `None` if it is gone.
    pub new: Option<&'a Stored<K>>,
    /// The source of the change.
    pub source: Source,
    latest: &'a Stored<K>,
}

/// The source of a change. Part of a [`Change`](crate::runner::Change).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The first list after the start: the object may not have changed.
    InitialList,
    /// The watch, or a later list.
    Watch,
}

impl Source {
    /// The priority of work that is not urgent; low after a start, when there is much of it.
    pub fn quiet(self) -> Priority {
        match self {
            Self::InitialList => Priority::Resync,
            Self::Watch => Priority::Normal,
        }
    }
}

impl<'a, K: Slim> Change<'a, K> {
    pub(super) fn added(object: &'a Stored<K>, initial: bool) -> Self {
        let source = if initial {
            Source::InitialList
        } else {
            Source::Watch
        };
        Self {
            old: None,
            new: Some(object),
            source,
            latest: object,
        }
    }

    pub(super) fn updated(old: &'a Stored<K>, new: &'a Stored<K>) -> Self {
        Self {
            old: Some(old),
            new: Some(new),
            source: Source::Watch,
            latest: new,
        }
    }

    pub(super) fn deleted(last: &'a Stored<K>) -> Self {
        Self {
            old: Some(last),
            new: None,
            source: Source::Watch,
            latest: last,
        }
    }

    /// The object's key.
    pub fn key(&self) -> &'a ObjectKey {
        self.latest.object.key()
    }
}

/// A type-erased component.
pub(super) trait AnyComponent<K: Slim>: Send + Sync {
    fn interest(&self, change: &Change<'_, K>) -> Option<Priority>;
    /// `None` if there is no object and the component does not handle the key.
    fn consider(
        &self,
        key: &ObjectKey,
        object: Option<&Stored<K>>,
        now: Timestamp,
    ) -> Option<Considered>;
}

/// The decision of a component, with its queries already sent.
#[derive(Debug)]
pub(super) struct Considered {
    pub by: By,
    pub write: Option<AnyWrite>,
    pub notices: Vec<Notice>,
    /// The object of the Events, if it is another one.
    pub regarding: Option<Regarding>,
    pub requeue_after: Option<Duration>,
    /// The same, exactly.
    pub due: Option<Duration>,
    /// Whether an answer that may release the object is pending.
    pub asked: Asked,
}

/// The component and rule of a decision. The example of
/// [`Observer`](crate::runner::Observer) prints the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// Name of the component.
    pub component: &'static str,
    /// The rule that matched.
    pub row: &'static Rule,
}

/// Whether a component waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    No,
    /// After a delay: the last answer was not conclusive.
    Later,
    /// The query is being answered.
    Now,
}

#[derive(Debug)]
pub(super) enum AnyWrite {
    AddHold(&'static str),
    Release(Release),
    Step(AnyStep),
    Delete(Arc<dyn Evidence>),
}

impl<K: Slim, C: Component<K>> AnyComponent<K> for Arc<C> {
    fn interest(&self, change: &Change<'_, K>) -> Option<Priority> {
        C::interest(self, change)
    }

    fn consider(
        &self,
        key: &ObjectKey,
        object: Option<&Stored<K>>,
        now: Timestamp,
    ) -> Option<Considered> {
        let observed = LogicalTime::now();
        let snapshot = match object {
            Some(object) => self.observe(object),
            None => self.observe_absent(key)?,
        };
        let mut decision = C::decide(&snapshot, now);
        tracing::trace!(%key, ?snapshot, row = %decision.row, "decided");
        let mut asked = Asked::No;
        for missing in std::mem::take(&mut decision.missing) {
            if let Missing::Answer { query, after } = missing {
                asked = asked.max(if after.is_zero() {
                    Asked::Now
                } else {
                    Asked::Later
                });
                let waiter = Waiter {
                    key,
                    observed,
                    after,
                };
                self.ask(query, waiter);
            }
        }
        if asked == Asked::Now && !decision.notices.is_empty() {
            // The Event waits for the answer, and is recorded without it if there is none in time.
            decision = decision.with_requeue_after(UNANSWERED);
        }
        let hold = self.hold();
        let adopted = decision.adopted;
        let regarding = if decision.notices.is_empty() {
            None
        } else {
            self.regarding(&snapshot)
        };
        Some(Considered {
            by: By {
                component: self.name(),
                row: decision.row,
            },
            write: decision.write.map(|write| match write {
                Write::AddHold => AnyWrite::AddHold(hold),
                Write::Release(evidence) => {
                    AnyWrite::Release(Release::new(hold, evidence).adopting(adopted))
                }
                Write::Step(step) => {
                    let component = Arc::clone(self);
                    let object = object.cloned();
                    AnyWrite::Step(AnyStep::new(move |context| {
                        async move {
                            let object = object.as_ref();
                            component.step(object, &snapshot, step, context).await
                        }
                        .boxed()
                    }))
                }
                Write::Delete(evidence) => AnyWrite::Delete(Arc::new(evidence)),
            }),
            notices: decision.notices,
            regarding,
            requeue_after: decision.requeue_after,
            due: decision.due,
            asked,
        })
    }
}
