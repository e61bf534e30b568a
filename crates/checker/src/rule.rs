//! A write of Belayer, the moment before it, and what a rule may say about it.

use belayer_sandbox::{Verb, Write};
use serde_json::Value;

use super::objects::{Kind, holds};
use super::past::Past;

/// Which controller promises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of Belayer.
    Everybody,
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
            Self::Everybody => "all of Belayer",
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
    /// What follows the number of writes it was kept by.
    pub(crate) kept: &'static str,
    pub(crate) judge: fn(&Step<'_>) -> Verdict,
}

/// What a rule says about a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The rule is about other writes.
    NotConcerned,
    Kept,
    /// It would be broken, had not somebody outside the story had a hand in it.
    ByHand,
    Broken(String),
}

/// A write of Belayer, and the moment before it.
pub(crate) struct Step<'a> {
    pub(crate) write: &'a Write,
    pub(crate) before: Option<&'a Value>,
    pub(crate) past: &'a Past,
}

impl<'a> Step<'a> {
    /// Of which kind it is.
    pub(crate) fn kind(&self) -> Kind {
        Kind::of(&self.write.resource)
    }

    /// The object as the write left it, if it changed anything.
    pub(crate) fn after(&self) -> Option<&'a Value> {
        self.write
            .object
            .as_deref()
            .filter(|_| self.write.changed())
    }

    /// The holds that it put on.
    pub(crate) fn added(&self) -> Vec<&'a str> {
        only_in(self.after(), self.before)
    }

    /// The holds that it took off.
    pub(crate) fn removed(&self) -> Vec<&'a str> {
        match self.after() {
            Some(after) => only_in(self.before, Some(after)),
            None => Vec::new(),
        }
    }

    /// The pod that was created by it.
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
