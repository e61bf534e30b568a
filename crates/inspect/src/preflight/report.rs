//! The output of `belayer check`: the documented form of `-o json` and `-o yaml`.

use serde::Serialize;

pub use crate::report::API_VERSION;

/// Which requirements of Belayer a cluster meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `CheckReport`.
    pub kind: &'static str,
    /// Version of the API server; absent if it may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Version of this command.
    pub client: &'static str,
    /// The user whose permissions were checked.
    pub subject: String,
    /// One per component or optional feature of one.
    pub parts: Vec<PartReport>,
}

/// What was found about one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PartReport {
    /// Its name.
    pub name: String,
    /// Number of permissions it requires.
    pub rights_needed: usize,
    /// Number of those that are granted.
    pub rights_granted: usize,
    /// Problems, the most severe first.
    pub findings: Vec<Finding>,
}

/// Severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// A requirement is not met.
    Missing,
    /// It could not be determined.
    Unknown,
    /// Belayer works, and this may be intended.
    Note,
}

/// Subject of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// A permission. Serialized as `right`, as in the first release.
    #[serde(rename = "right")]
    Permission,
    /// A kind the server has to serve.
    Kind,
    /// An admission policy.
    Policy,
    /// Another writer of Belayer's finalizer.
    Finalizer,
    /// Another Belayer.
    Installation,
    /// A key of the configuration.
    Configuration,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Subject of a finding.
    pub about: About,
    /// The requirement, such as `patch pods`, `mutatingadmissionpolicy belayer-pod-hold`.
    pub what: String,
    /// The consequence.
    pub consequence: String,
    /// How to fix it.
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

    pub(crate) fn missing(
        about: About,
        what: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self::new(Level::Missing, about, what, consequence)
    }

    pub(crate) fn unknown(
        about: About,
        what: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self::new(Level::Unknown, about, what, consequence)
    }

    pub(crate) fn note(
        about: About,
        what: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self::new(Level::Note, about, what, consequence)
    }

    pub(crate) fn fix(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }
}
