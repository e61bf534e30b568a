//! A write of Belayer, the state before it, and the result of a rule.

use belayer_sandbox::{Verb, Write};
use serde_json::Value;

use super::history::History;
use super::objects::{Kind, holds};

/// The controller that guarantees an invariant. [`Check`](crate::Check) names it; the [crate's
/// example](crate) prints the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of Belayer.
    AllOfBelayer,
    /// pod-finalizer.
    PodFinalizer,
    /// workflow-finalizer.
    WorkflowFinalizer,
    /// pvc-protection.
    PvcProtection,
    /// pod-recreation.
    PodRecreation,
}

impl Part {
    /// Its name in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllOfBelayer => "all of Belayer",
            Self::PodFinalizer => "pod-finalizer",
            Self::WorkflowFinalizer => "workflow-finalizer",
            Self::PvcProtection => "pvc-protection",
            Self::PodRecreation => "pod-recreation",
        }
    }
}

/// An invariant of single writes.
pub(crate) struct Rule {
    pub(crate) part: Part,
    pub(crate) name: &'static str,
    /// Text that follows the number of writes.
    pub(crate) kept: &'static str,
    pub(crate) check_script: fn(&Step<'_>) -> Verdict,
}

/// The result of a rule for a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The rule does not apply to this write.
    NotConcerned,
    Kept,
    /// Violated, but an actor outside the test had changed the object.
    ByHand,
    Broken(String),
}

/// A write of Belayer, and the history before it.
pub(crate) struct Step<'a> {
    pub(crate) write: &'a Write,
    pub(crate) before: Option<&'a Value>,
    pub(crate) history: &'a History,
}

impl<'a> Step<'a> {
    /// The kind of the object.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.write.resource)
    }

    /// The object after the write, if the write changed anything.
    pub(crate) fn after(&self) -> Option<&'a Value> {
        self.write
            .object
            .as_deref()
            .filter(|_| self.write.changed())
    }

    /// The holds that it added.
    pub(crate) fn added(&self) -> Vec<&'a str> {
        only_in(self.after(), self.before)
    }

    /// The holds that it removed.
    pub(crate) fn removed(&self) -> Vec<&'a str> {
        match self.after() {
            Some(after) => only_in(self.before, Some(after)),
            None => Vec::new(),
        }
    }

    /// The pod that it created.
    pub(crate) fn created_pod(&self) -> Option<&'a Value> {
        let is_one = self.kind() == Kind::Pod
            && self.write.verb == Verb::Create
            && self.write.subresource.is_empty();
        self.after().filter(|_| is_one)
    }

    /// `patch of pods ci/web-0`.
    pub(crate) fn what(&self) -> String {
        format!(
            "{} of {} {}",
            self.write.verb.as_str(),
            self.write.resource.resource,
            self.write.key
        )
    }
}

fn only_in<'a>(one: Option<&'a Value>, other: Option<&Value>) -> Vec<&'a str> {
    let one = one.into_iter().flat_map(holds);
    one.filter(|hold| !other.into_iter().flat_map(holds).any(|have| have == *hold))
        .collect()
}
