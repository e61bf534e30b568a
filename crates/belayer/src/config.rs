//! The configuration file.

mod checked;
pub mod keys;
pub mod process;
mod sets;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

pub use checked::ElectionTimes;
pub use sets::{ParseSetError, Set};

use crate::yaml;

/// `apiVersion` of the file.
pub const API_VERSION: &str = "config.belayer.dev/v1alpha1";

/// `kind` of the file.
pub const KIND: &str = "BelayerConfiguration";

/// The file as it is written. Each controller reads and checks its own key.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileConfig {
    api_version: String,
    /// May be left out: the version names the format.
    #[serde(default)]
    kind: Option<String>,
    /// As `--controllers`.
    #[serde(default)]
    pub controllers: Option<Vec<String>>,
    /// As `--dry-run`.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// As `--feature-gates`.
    #[serde(default)]
    pub feature_gates: process::FeatureGatesConfig,
    /// The leader election.
    #[serde(default)]
    pub leader_election: process::LeaderElectionConfig,
    /// Bounds of requests.
    #[serde(default)]
    pub limits: process::LimitsConfig,
    /// What is served where.
    #[serde(default)]
    pub endpoints: process::EndpointsConfig,
    /// How it logs.
    #[serde(default)]
    pub logging: process::LoggingConfig,
    /// The key of pod-finalizer.
    #[cfg(feature = "pod-finalizer")]
    #[serde(default)]
    pub pod_finalizer: Option<belayer_pod_finalizer::profile::config::PodFinalizerConfig>,
    /// The key of pod-recreation.
    #[cfg(feature = "pod-recreation")]
    #[serde(default)]
    pub pod_recreation: Option<belayer_pod_recreation::config::PodRecreationConfig>,
    /// The key of pvc-protection.
    #[cfg(feature = "pvc-protection")]
    #[serde(default)]
    pub pvc_protection: Option<belayer_pvc_protection::config::PvcProtectionConfig>,
    /// The key of the node agent.
    #[cfg(all(feature = "node-agent", target_os = "linux"))]
    #[serde(default)]
    pub node_agent: Option<belayer_node_agent::config::NodeAgentConfig>,
    /// The key of workflow-finalizer.
    #[cfg(feature = "workflow-finalizer")]
    #[serde(default)]
    pub workflow_finalizer: Option<belayer_workflow_finalizer::config::WorkflowFinalizerConfig>,
}

/// A file and what it says, with what the command line sets of it; or that there is none.
#[derive(Debug, Clone, Default)]
pub struct Source {
    path: Option<PathBuf>,
    text: String,
    sets: Vec<Set>,
    /// What it says, key by key; nothing if there is no file.
    value: Value,
    /// What it says; the defaults if there is no file.
    pub config: FileConfig,
}

/// What is wrong with a key: one line that names file, line and key, and says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    place: Place,
    key: Option<String>,
    message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    File { path: PathBuf, line: Option<u64> },
    Set,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { path, line: None } => write!(f, "{}: ", path.display())?,
            Place::File {
                path,
                line: Some(line),
            } => write!(f, "{}:{line}: ", path.display())?,
            Place::Set => f.write_str("--set: ")?,
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is no YAML, or has a key or value that has no place in it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: Place::File {
                path: path.to_owned(),
                line: None,
            },
            key: None,
            message: format!("cannot be read: {error}"),
        })?;
        Self::parse(path, text)
    }

    /// Reads the file that is named, if one is, and what the command line sets of it.
    ///
    /// # Errors
    /// As [`Source::load`], and if what is set has no place in the file.
    pub fn of(path: Option<&Path>, sets: &[Set]) -> Result<Self, ConfigError> {
        let source = match path {
            Some(path) => Self::load(path)?,
            None => Self::default(),
        };
        source.with(sets)
    }

    /// Reads what a file says.
    ///
    /// # Errors
    /// If it is no YAML, or has a key or value that has no place in it.
    pub fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        let failed = |problem: yaml::Problem| ConfigError {
            place: Place::File {
                path: path.to_owned(),
                line: problem.line,
            },
            key: problem.key,
            message: problem.message,
        };
        let source = Self {
            config: yaml::parse(&text).map_err(failed)?,
            value: yaml::document::read(&text).map_err(failed)?,
            path: Some(path.to_owned()),
            text,
            sets: Vec::new(),
        };
        source.check_head()?;
        Ok(source)
    }

    fn with(mut self, sets: &[Set]) -> Result<Self, ConfigError> {
        if sets.is_empty() {
            return Ok(self);
        }
        if !self.value.is_object() {
            self.value = serde_json::json!({ "apiVersion": API_VERSION });
        }
        for set in sets {
            set.apply(&mut self.value);
        }
        self.sets = sets.to_vec();
        self.read_again()
    }

    /// The same, but what stands in `running` counts for these keys.
    ///
    /// # Errors
    /// If the two do not go together.
    pub fn keeping(mut self, keys: &[String], running: &Self) -> Result<Self, ConfigError> {
        if keys.is_empty() {
            return Ok(self);
        }
        for key in keys {
            match sets::at(&running.value, key) {
                Value::Null => sets::remove(&mut self.value, key),
                value => sets::replace(&mut self.value, key, value),
            }
        }
        self.read_again()
    }

    /// Reads what it says now.
    fn read_again(mut self) -> Result<Self, ConfigError> {
        let failed = |message: String| ConfigError {
            place: Place::Set,
            key: None,
            message,
        };
        // Through text, so that what is wrong is said in the same words as in a file.
        let text = yaml::document::write(&self.value);
        self.config = yaml::parse(&text).map_err(|problem| ConfigError {
            key: problem.key,
            ..failed(problem.message)
        })?;
        self.check_head()?;
        Ok(self)
    }

    fn check_head(&self) -> Result<(), ConfigError> {
        let version = &self.config.api_version;
        if version != API_VERSION {
            let message = format!("{version:?} is not known: this version reads {API_VERSION}");
            return Err(self.error("apiVersion", message));
        }
        match self.config.kind.as_deref() {
            Some(kind) if kind != KIND => {
                let message = format!("{kind:?} is no configuration: the kind is {KIND}");
                Err(self.error("kind", message))
            }
            _ => Ok(()),
        }
    }

    /// Where it was read from, if there is a file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the file says, before anything was set.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it says, key by key, with what was set.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Where a key was set: a line of the file, or the command line.
    pub fn origin(&self, key: &str) -> String {
        if self.sets.iter().any(|set| set.is_about(key)) {
            return "--set".to_owned();
        }
        let path = self.path.as_deref().unwrap_or(Path::new(""));
        match yaml::line_of(&self.text, key) {
            Some(line) => format!("{}:{line}", path.display()),
            None => path.display().to_string(),
        }
    }

    /// Whether there is a file.
    pub fn is_file(&self) -> bool {
        self.path.is_some()
    }

    /// An error about a key, found after it was read.
    pub fn error(&self, key: impl Into<String>, message: impl Into<String>) -> ConfigError {
        let key = key.into();
        let place = match &self.path {
            Some(path) if !self.sets.iter().any(|set| set.is_about(&key)) => Place::File {
                path: path.clone(),
                line: yaml::line_of(&self.text, &key),
            },
            _ => Place::Set,
        };
        ConfigError {
            place,
            key: Some(key),
            message: message.into(),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "pod-finalizer")]
mod tests;
