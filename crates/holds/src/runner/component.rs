//! What a component brings to a runner, and how its types are put aside behind one face.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::step::{AnyStep, StepContext, Stepped};
use crate::decision::{Decision, Evidence, Missing, Notice, Release, Row, Write};
use belayer_core::events::{Regarding, UNANSWERED};
use belayer_core::facts::Waiter;
use belayer_core::http::RequestError;
use belayer_core::informer::Stored;
use belayer_core::moment::LogicalTime;
use belayer_core::object::ObjectKey;
use belayer_core::slim::Slim;
use belayer_core::workqueue::Priority;

/// The rules of one component for one kind.
///
/// `observe` gathers an owned snapshot without I/O, `decide` is a pure function of it: no clock,
/// no client, no async.
pub trait Component<K: Slim>: Send + Sync + 'static {
    /// All that a decision reads.
    type Snapshot: Debug + Send + Sync;
    /// Why a release is safe.
    type Evidence: Evidence;
    /// What may have to be found out.
    type Query: Debug + Display + Send;
    /// What it does itself where a decision says [`Write::Step`].
    type Step: Debug + Send + Sync;

    /// Name of the component, such as `pod-finalizer`: a metric label.
    fn name(&self) -> &'static str;

    /// The finalizer it holds objects by.
    fn hold(&self) -> &'static str;

    /// Whether a change is worth a look, and how urgently. Most changes are not.
    fn interest(&self, change: &Change<'_, K>) -> Option<Priority>;

    /// What stores and facts say about `object` now.
    fn observe(&self, object: &Stored<K>) -> Self::Snapshot;

    /// The same about a key under which the store has no object, if the component has something to do there
    /// all the same: it may have to create one. Nothing but a step can be decided about it.
    fn observe_absent(&self, _key: &ObjectKey) -> Option<Self::Snapshot> {
        None
    }

    /// What follows from it.
    fn decide(
        snapshot: &Self::Snapshot,
        now: Timestamp,
    ) -> Decision<Self::Evidence, Self::Query, Self::Step>;

    /// Finds something out for `asker`, and wakes it.
    fn ask(&self, question: Self::Query, asker: Waiter<'_>);

    /// The object that the notices of a decision are about, if not the one that is decided about.
    fn regarding(&self, _snapshot: &Self::Snapshot) -> Option<Regarding> {
        None
    }

    /// Takes a step: what [`Write::Step`] asks for. At most one write that is kept, and what has to be read
    /// for it. It must be safe to take twice, and late.
    ///
    /// # Errors
    ///
    /// Those of its requests. The key comes back, as [`OnConflict::Requeue`](crate::conflict::OnConflict)
    /// says; a step that knows better has no error but a [`Stepped`].
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
#[derive(Debug)]
pub struct Change<'a, K> {
    /// What it was; `None` if it was not there.
    pub old: Option<&'a Stored<K>>,
    /// What it is; `None` if it is gone.
    pub new: Option<&'a Stored<K>>,
    /// Where the change comes from.
    pub source: Source,
    latest: &'a Stored<K>,
}

/// Where a change comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The first list after the start: nothing is known to have changed.
    InitialList,
    /// The watch, or a later list.
    Watch,
}

impl Source {
    /// The band of work that nobody waits for: after a start there is much of it at once.
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

/// A component without its types.
pub(super) trait AnyComponent<K: Slim>: Send + Sync {
    fn interest(&self, change: &Change<'_, K>) -> Option<Priority>;
    /// Nothing if there is no object and the component has nothing to do with its key.
    fn consider(
        &self,
        key: &ObjectKey,
        object: Option<&Stored<K>>,
        now: Timestamp,
    ) -> Option<Considered>;
}

/// What a component says, with its questions already asked.
#[derive(Debug)]
pub(super) struct Considered {
    pub by: By,
    pub write: Option<AnyWrite>,
    pub notices: Vec<Notice>,
    /// Whom the notices are about, if not the object.
    pub regarding: Option<Regarding>,
    pub look_again: Option<Duration>,
    /// The same to the moment.
    pub due: Option<Duration>,
    /// Whether an answer is awaited that may release the object.
    pub asked: Asked,
}

/// Whose decision it is, and by which row of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// Name of the component.
    pub component: &'static str,
    /// The row that matched.
    pub row: Row,
}

/// Whether a component awaits an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    No,
    /// After a while: the answer at hand says nothing.
    Later,
    /// At once: what it says may be known in a moment.
    Now,
}

#[derive(Debug)]
pub(super) enum AnyWrite {
    AddHold(&'static str),
    Release(Release),
    Step(AnyStep),
    Delete(Arc<dyn Evidence>),
}

pub(super) struct Registered<C> {
    component: Arc<C>,
}

impl<C> Registered<C> {
    pub(super) fn new(component: Arc<C>) -> Self {
        Self { component }
    }
}

impl<K: Slim, C: Component<K>> AnyComponent<K> for Registered<C> {
    fn interest(&self, change: &Change<'_, K>) -> Option<Priority> {
        self.component.interest(change)
    }

    fn consider(
        &self,
        key: &ObjectKey,
        object: Option<&Stored<K>>,
        now: Timestamp,
    ) -> Option<Considered> {
        let observed = LogicalTime::now();
        let snapshot = match object {
            Some(object) => self.component.observe(object),
            None => self.component.observe_absent(key)?,
        };
        let mut decision = C::decide(&snapshot, now);
        tracing::trace!(%key, ?snapshot, row = %decision.row, "decided");
        let mut asked = Asked::No;
        for missing in std::mem::take(&mut decision.missing) {
            if let Missing::Answer { question, after } = missing {
                asked = asked.max(if after.is_zero() {
                    Asked::Now
                } else {
                    Asked::Later
                });
                let asker = Waiter {
                    key,
                    observed,
                    after,
                };
                self.component.ask(question, asker);
            }
        }
        if asked == Asked::Now && !decision.notices.is_empty() {
            // The notice waits for the answer, and is reported without it if there is none in time.
            decision = decision.looking_again_within(UNANSWERED);
        }
        let hold = self.component.hold();
        let adopted = decision.adopted;
        let regarding = if decision.notices.is_empty() {
            None
        } else {
            self.component.regarding(&snapshot)
        };
        Some(Considered {
            by: By {
                component: self.component.name(),
                row: decision.row,
            },
            write: decision.write.map(|write| match write {
                Write::AddHold => AnyWrite::AddHold(hold),
                Write::Release(evidence) => {
                    AnyWrite::Release(Release::new(hold, evidence).adopting(adopted))
                }
                Write::Step(step) => {
                    let component = Arc::clone(&self.component);
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
            look_again: decision.look_again,
            due: decision.due,
            asked,
        })
    }
}
