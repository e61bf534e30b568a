//! What was found: the documented form of `belayer check -o json` and `-o yaml`.

use serde::Serialize;

pub use crate::report::API_VERSION;

/// What of a cluster fits Belayer, and what does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `CheckReport`.
    pub kind: &'static str,
    /// Version of the API server; nothing if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Version of this command.
    pub client: &'static str,
    /// Whose rights were checked.
    pub subject: String,
    /// One per component, or optional half of one.
    pub parts: Vec<PartReport>,
}

/// What was found about one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartReport {
    /// Its name.
    pub name: String,
    /// How many rights it needs.
    pub rights_needed: usize,
    /// How many of them it certainly has.
    pub rights_granted: usize,
    /// What is not as it should be, the worst first.
    pub findings: Vec<Finding>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Something does not work.
    Missing,
    /// It could not be found out.
    Unknown,
    /// Works, and may be meant so.
    Note,
}

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// A permission.
    Right,
    /// A kind the server has to serve.
    Kind,
    /// An admission policy.
    Policy,
    /// Who else writes our finalizer.
    Finalizer,
    /// Another Belayer.
    Installation,
    /// A key of the configuration.
    Configuration,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub about: About,
    /// What exactly: `patch pods`, `mutatingadmissionpolicy belayer-pod-hold`.
    pub what: String,
    /// What follows from it.
    pub consequence: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Report {
    /// Findings of one level.
    pub fn of(&self, level: Level) -> impl Iterator<Item = &Finding> {
        let all = self.parts.iter().flat_map(|part| &part.findings);
        all.filter(move |finding| finding.level == level)
    }
}

impl Finding {
    pub(crate) fn new(
        level: Level,
        about: About,
        what: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self {
            level,
            about,
            what: what.into(),
            consequence: consequence.into(),
            fix: None,
        }
    }

    pub(crate) fn fix(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }
}
