//! The shape of a decision: which row matched, at most one write, what is missing.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use belayer_core::events::{Notice, Severity};

/// Why letting go is safe. Each component has an enum of its own whose variants carry proofs
/// that only stores and facts can make (invariant EVIDENCE).
pub trait Evidence: Debug + Send + Sync + 'static {
    /// The variant's name, such as `OwnerGone`: metric label, log field and Event text.
    fn name(&self) -> &'static str;

    /// Whether releases by it are also counted by namespace, because no result was read: if an owner ended
    /// in another way than expected, the count shows where.
    fn is_traced(&self) -> bool {
        false
    }

    /// Which holds leave on this evidence.
    fn reach(&self) -> Reach {
        Reach::OwnHold
    }
}

/// Of a component that releases nothing.
impl Evidence for Infallible {
    fn name(&self) -> &'static str {
        match *self {}
    }
}

/// Which of our holds on an object leave together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The hold of the component that decided.
    OwnHold,
    /// Every hold of ours: the admin asked, or nothing can be recorded any more.
    AllOfOurs,
}

/// A rule of a controller's decision table: logged, explained and tested by this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Number in the table.
    pub number: u8,
    /// Kebab-case name.
    pub name: &'static str,
    /// What holds when it matches, as the end of a sentence about the object.
    pub says: &'static str,
}

/// A rule of a table, as decisions name it.
pub type Row = &'static Rule;

impl Rule {
    /// A rule.
    pub const fn new(number: u8, name: &'static str, says: &'static str) -> Self {
        Self { number, name, says }
    }
}

/// A decision table as data: a constant for each rule, `NAME = NUMBER, "kebab-case", "what holds when it
/// matches"`, and `ALL` of them in this order.
#[macro_export]
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $number:literal, $name:literal, $says:literal;)*) => {
        $(
            #[doc = concat!("Rule ", $number, ": ", $says, ".")]
            $(#[$doc])*
            pub const $rule: $crate::decision::Row = &$crate::decision::Rule::new($number, $name, $says);
        )*

        /// All of them, in the order in which they are tried.
        pub const ALL: &[$crate::decision::Row] = &[$($rule),*];
    };
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.number)
    }
}

/// The write of a decision. One at most, so that every crash position can be enumerated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write<E, S = ()> {
    /// Put the component's hold on the object.
    AddHold,
    /// Take the component's hold off. Cannot be built without evidence.
    Release(E),
    /// A step that the component takes itself, such as a write to another object.
    Step(S),
    /// Delete the object, by its UID and with background propagation. Nobody's hold leaves by it.
    Delete(E),
}

/// What stands between an object and its next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing<Q> {
    /// The answer to a question which the runner asks, once for all who wait.
    Answer {
        /// What to ask.
        question: Q,
        /// Not before this time from now; zero is at once.
        after: Duration,
    },
    /// Something that only the world can bring about, in words for a person.
    Event(Cow<'static, str>),
}

/// For people: what `explain` prints.
impl<Q: std::fmt::Display> std::fmt::Display for Missing<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answer { question, after } if after.is_zero() => {
                write!(f, "waiting for an answer: {question}")
            }
            Self::Answer { question, after } => {
                write!(f, "asked again every {} s: {question}", after.as_secs())
            }
            Self::Event(text) => f.write_str(text),
        }
    }
}

/// What one component says about one object at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<E, Q, S = ()> {
    /// The row that matched.
    pub row: Row,
    /// What to write.
    pub write: Option<Write<E, S>>,
    /// Finalizers of other systems, named by the admin, that leave with a release.
    pub adopted: Box<[Arc<str>]>,
    /// Whom to tell: at once, or once a step is done.
    pub notices: Vec<Notice>,
    /// Look again after this time, event or not.
    pub look_again: Option<Duration>,
    /// The same to the moment: what is far ahead in `look_again` is spread.
    pub due: Option<Duration>,
    /// What `explain` prints, and what the runner has to find out.
    pub missing: Vec<Missing<Q>>,
}

impl<E, Q, S> Decision<E, Q, S> {
    /// Nothing to write, nothing missing.
    pub fn nothing(row: Row) -> Self {
        Self {
            row,
            write: None,
            adopted: Box::default(),
            notices: Vec::new(),
            look_again: None,
            due: None,
            missing: Vec::new(),
        }
    }

    /// One write.
    pub fn write(row: Row, write: Write<E, S>) -> Self {
        Self {
            write: Some(write),
            ..Self::nothing(row)
        }
    }

    /// Something has to happen or to be found out first.
    pub fn missing(row: Row, missing: Missing<Q>) -> Self {
        Self {
            missing: vec![missing],
            ..Self::nothing(row)
        }
    }

    /// A question that is to be asked at once.
    pub fn ask(row: Row, question: Q) -> Self {
        Self::missing(
            row,
            Missing::Answer {
                question,
                after: Duration::ZERO,
            },
        )
    }

    /// The same decision that looks again after `delay` at the latest.
    pub fn looking_again_within(self, delay: Duration) -> Self {
        let look_again = Some(self.look_again.map_or(delay, |sooner| sooner.min(delay)));
        Self { look_again, ..self }
    }

    /// The same decision whose release also takes these finalizers off.
    pub fn adopting(self, adopted: Box<[Arc<str>]>) -> Self {
        Self { adopted, ..self }
    }

    /// The same decision that also tells somebody.
    pub fn telling(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }
}

impl<E: Evidence, Q, S> Decision<E, Q, S> {
    /// The name of the evidence that it releases on.
    pub fn evidence(&self) -> Option<&'static str> {
        match &self.write {
            Some(Write::Release(evidence)) => Some(evidence.name()),
            _ => None,
        }
    }
}

impl<E, Q: std::fmt::Display, S> Decision<E, Q, S> {
    /// What is missing, for people: what has to happen; the questions behind it only where nothing
    /// else is said, or where nobody has asked them yet.
    pub fn missing_in_words(&self) -> Vec<String> {
        let says = |missing: &&Missing<Q>| match missing {
            Missing::Event(_) => true,
            Missing::Answer { after, .. } => after.is_zero(),
        };
        let missing = self.missing.iter();
        let told: Vec<String> = missing
            .clone()
            .filter(says)
            .map(ToString::to_string)
            .collect();
        if told.is_empty() {
            return missing.map(ToString::to_string).collect();
        }
        told
    }
}

/// A release as the runner carries it: which hold, on what evidence, how far it reaches.
#[derive(Debug, Clone)]
pub struct Release {
    hold: &'static str,
    evidence: Arc<dyn Evidence>,
    adopted: Box<[Arc<str>]>,
}

impl Release {
    /// A release of `hold`. There is no way to one but through a component's evidence.
    pub fn new(hold: &'static str, evidence: impl Evidence) -> Self {
        Self {
            hold,
            evidence: Arc::new(evidence),
            adopted: Box::default(),
        }
    }

    /// The same release that takes these finalizers of other systems off as well.
    #[must_use]
    pub fn adopting(self, adopted: Box<[Arc<str>]>) -> Self {
        Self { adopted, ..self }
    }

    /// The finalizers of other systems that leave with the hold.
    pub fn adopted(&self) -> &[Arc<str>] {
        &self.adopted
    }

    /// The hold that leaves.
    pub fn hold(&self) -> &'static str {
        self.hold
    }

    /// Why it may leave.
    pub fn evidence(&self) -> &dyn Evidence {
        &*self.evidence
    }
}
