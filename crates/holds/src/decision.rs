//! Decisions: the rule that matched, at most one write, and what is missing.
//!
//! The example
//! [`runner`](https://github.com/belayer/belayer/blob/main/crates/holds/examples/runner.rs) has a
//! table of three rules and an evidence.
//!
//! ```
//! use std::convert::Infallible;
//! use belayer_holds::decision::{Decision, Evidence, Write};
//!
//! belayer_holds::rules! {
//!     DONE = 1, "done", "the annotation exists";
//!     WAIT = 2, "wait", "nothing to do";
//! }
//!
//! /// The annotation was read. Without a value of this type no release can be decided.
//! #[derive(Debug)]
//! struct Annotated;
//!
//! impl Evidence for Annotated {
//!     fn name(&self) -> &'static str {
//!         "Annotated"
//!     }
//! }
//!
//! fn decide(annotated: Option<Annotated>) -> Decision<Annotated, Infallible> {
//!     match annotated {
//!         Some(evidence) => Decision::write(DONE, Write::Release(evidence)),
//!         None => Decision::nothing(WAIT),
//!     }
//! }
//!
//! assert_eq!(decide(Some(Annotated)).row.name, "done");
//! ```

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use belayer_core::events::{Notice, Severity};

/// Why a release is safe. Each component has its own enum, whose variants contain proofs that only
/// caches and live reads can make (invariant EVIDENCE). The [module's example](self) implements
/// it.
pub trait Evidence: Debug + Send + Sync + 'static {
    /// The variant's name, such as `OwnerGone`: metric label, log field and Event text.
    fn name(&self) -> &'static str;

    /// Whether releases on it are also counted by namespace because no result was read: the count shows where owners
    /// ended in an unexpected way.
    fn is_traced(&self) -> bool {
        false
    }

    /// Which holds may be removed on this evidence.
    fn reach(&self) -> Reach {
        Reach::OwnHold
    }
}

/// For a component that releases nothing.
impl Evidence for Infallible {
    fn name(&self) -> &'static str {
        match *self {}
    }
}

/// Which of Belayer's holds on an object are removed together. [`Evidence::reach`] returns it. See
/// the [example](crate::decision).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The hold of the component that decided.
    OwnHold,
    /// All of Belayer's holds: an admin requested it, or nothing can be recorded any more.
    AllHolds,
}

/// A rule of a controller's decision table: logged, explained and tested by this name. The
/// [module's example](self) has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Number in the table.
    pub number: u8,
    /// Kebab-case name.
    pub name: &'static str,
    /// The condition under which it matches.
    pub says: &'static str,
}

impl Rule {
    /// A rule.
    pub const fn new(number: u8, name: &'static str, says: &'static str) -> Self {
        Self { number, name, says }
    }
}

/// A decision table as data: a constant for each rule, `NAME = NUMBER, "kebab-case", "the condition under
/// which it matches"`, and `ALL` of them in this order.
///
/// ```
/// belayer_holds::rules! {
///     DONE = 1, "done", "the annotation exists";
///     WAIT = 2, "wait", "nothing to do";
/// }
///
/// assert_eq!((ALL.len(), WAIT.number), (2, 2));
/// ```
#[macro_export]
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $number:literal, $name:literal, $says:literal;)*) => {
        $(
            #[doc = concat!("Rule ", $number, ": ", $says, ".")]
            $(#[$doc])*
            pub const $rule: &'static $crate::decision::Rule = &$crate::decision::Rule::new($number, $name, $says);
        )*

        /// All rules of the table. `decide` determines the order in which they are tried.
        pub const ALL: &[&'static $crate::decision::Rule] = &[$($rule),*];
    };
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.number)
    }
}

/// The write of a decision; at most one, so that all crash positions can be enumerated. The
/// [module's example](self) releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write<E, S = ()> {
    /// Add the component's hold.
    AddHold,
    /// Remove the component's hold. Cannot be built without evidence.
    Release(E),
    /// A step that the component executes itself, such as a write to another object.
    Step(S),
    /// Delete the object, by its UID and with background propagation. It removes no hold.
    Delete(E),
}

/// What is missing for the next step of an object. [`Decision`] contains it. See the
/// [example](crate::decision).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing<Q> {
    /// The answer to a query, which the runner sends once for all waiting keys.
    Answer {
        /// The query.
        query: Q,
        /// Delay before the query; zero for none.
        after: Duration,
    },
    /// An event that Belayer cannot cause, as text for people.
    Event(Cow<'static, str>),
}

/// The text that `explain` prints.
impl<Q: std::fmt::Display> std::fmt::Display for Missing<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answer { query, after } if after.is_zero() => {
                write!(f, "waiting for an answer: {query}")
            }
            Self::Answer { query, after } => {
                write!(f, "read again every {} s: {query}", after.as_secs())
            }
            Self::Event(text) => f.write_str(text),
        }
    }
}

/// The decision of one component about one object. The [module's example](self) returns one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<E, Q, S = ()> {
    /// The rule that matched.
    pub row: &'static Rule,
    /// What to write.
    pub write: Option<Write<E, S>>,
    /// Finalizers of other systems, configured by the admin, that are removed together with the hold.
    pub adopted: Box<[Arc<str>]>,
    /// Events to record: at once, or once a step is done.
    pub notices: Vec<Notice>,
    /// Requeue after this time at the latest.
    pub requeue_after: Option<Duration>,
    /// Requeue after exactly this time; long times in `requeue_after` are spread randomly.
    pub due: Option<Duration>,
    /// What `explain` prints, and the queries of the runner.
    pub missing: Vec<Missing<Q>>,
}

impl<E, Q, S> Decision<E, Q, S> {
    /// Nothing to write, nothing missing.
    pub fn nothing(row: &'static Rule) -> Self {
        Self {
            row,
            write: None,
            adopted: Box::default(),
            notices: Vec::new(),
            requeue_after: None,
            due: None,
            missing: Vec::new(),
        }
    }

    /// One write.
    pub fn write(row: &'static Rule, write: Write<E, S>) -> Self {
        Self {
            write: Some(write),
            ..Self::nothing(row)
        }
    }

    /// No write, because something is missing.
    pub fn missing(row: &'static Rule, missing: Missing<Q>) -> Self {
        Self {
            missing: vec![missing],
            ..Self::nothing(row)
        }
    }

    /// No write, but a query to send at once.
    pub fn ask(row: &'static Rule, query: Q) -> Self {
        Self::missing(
            row,
            Missing::Answer {
                query,
                after: Duration::ZERO,
            },
        )
    }

    /// The same decision, requeued after `delay` at the latest.
    pub fn with_requeue_after(self, delay: Duration) -> Self {
        let requeue_after = Some(self.requeue_after.map_or(delay, |sooner| sooner.min(delay)));
        Self {
            requeue_after,
            ..self
        }
    }

    /// The same decision, whose release also removes these finalizers.
    pub fn adopting(self, adopted: Box<[Arc<str>]>) -> Self {
        Self { adopted, ..self }
    }

    /// The same decision with one more Event.
    pub fn with_notice(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }
}

impl<E: Evidence, Q, S> Decision<E, Q, S> {
    /// The name of the evidence of its release, if it is one.
    pub fn evidence(&self) -> Option<&'static str> {
        match &self.write {
            Some(Write::Release(evidence)) => Some(evidence.name()),
            _ => None,
        }
    }
}

impl<E, Q: std::fmt::Display, S> Decision<E, Q, S> {
    /// What is missing, as text: the events; queries only if there are no events or if they are not yet sent.
    pub fn missing_messages(&self) -> Vec<String> {
        let is_shown = |missing: &&Missing<Q>| match missing {
            Missing::Event(_) => true,
            Missing::Answer { after, .. } => after.is_zero(),
        };
        let missing = self.missing.iter();
        let texts: Vec<String> = missing
            .clone()
            .filter(is_shown)
            .map(ToString::to_string)
            .collect();
        if texts.is_empty() {
            return missing.map(ToString::to_string).collect();
        }
        texts
    }
}

/// A release in the runner: the hold, the evidence, and which other holds it includes. The runner
/// makes it of [`Release`](crate::decision::Write::Release).
#[derive(Debug, Clone)]
pub struct Release {
    hold: &'static str,
    evidence: Arc<dyn Evidence>,
    adopted: Box<[Arc<str>]>,
}

impl Release {
    /// A release of `hold`. It requires evidence of a component.
    pub fn new(hold: &'static str, evidence: impl Evidence) -> Self {
        Self {
            hold,
            evidence: Arc::new(evidence),
            adopted: Box::default(),
        }
    }

    /// The same release, which also removes these finalizers of other systems.
    #[must_use]
    pub fn adopting(self, adopted: Box<[Arc<str>]>) -> Self {
        Self { adopted, ..self }
    }

    /// The finalizers of other systems that are removed together with the hold.
    pub fn adopted(&self) -> &[Arc<str>] {
        &self.adopted
    }

    /// The hold to remove.
    pub fn hold(&self) -> &'static str {
        self.hold
    }

    /// Why it may be removed.
    pub fn evidence(&self) -> &dyn Evidence {
        &*self.evidence
    }
}
