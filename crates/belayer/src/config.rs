//! The configuration file.

mod checked;
pub mod keys;
pub mod process;
mod sets;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

pub use checked::ElectionTimes;
pub use sets::{ParseSetError, Set};

use std::sync::Arc;

use belayer_controller::config::{Problem, Section, suggest, yaml};
use belayer_controller::{Configured, Controller};

use crate::controllers::CONTROLLERS;

/// `apiVersion` of the file.
pub const API_VERSION: &str = "config.belayer.dev/v1alpha1";

/// `kind` of the file.
pub const KIND: &str = "BelayerConfiguration";

/// The keys of the process in the file; each controller reads and checks its own keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileConfig {
    /// Required; other errors of the file are reported first.
    #[serde(default)]
    api_version: Option<String>,
    /// Optional: the version names the format.
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
    /// Limits of requests.
    #[serde(default)]
    pub limits: process::LimitsConfig,
    /// Addresses of the endpoints.
    #[serde(default)]
    pub endpoints: process::EndpointsConfig,
    /// Logging.
    #[serde(default)]
    pub logging: process::LoggingConfig,
    /// The key of the node agent.
    #[cfg(all(feature = "node-agent", target_os = "linux"))]
    #[serde(default)]
    pub node_agent: Option<belayer_node_agent::config::NodeAgentConfig>,
}

/// A configuration file, merged with the `--set` flags; or the defaults without a file.
#[derive(Debug, Clone, Default)]
pub struct Source {
    path: Option<PathBuf>,
    text: String,
    /// The merged document as text.
    now: String,
    sets: Vec<Set>,
    /// The merged document; empty without a file.
    value: Value,
    /// The decoded keys of the process.
    pub config: FileConfig,
}

/// An invalid key: a one-line message with file, line, key and correction.
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
            write!(f, "{}: ", one_line(key))?;
        }
        f.write_str(&one_line(&self.message))
    }
}

/// The text with control characters escaped: a key of the file can contain line breaks.
fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

impl std::error::Error for ConfigError {}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not YAML, or has an unknown key or an invalid value.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: Place::File {
                path: path.to_owned(),
                line: None,
            },
            key: None,
            message: format!("cannot read the file: {error}"),
        })?;
        Self::parse(path, text)
    }

    /// Reads the given file, if any, and applies the `--set` flags.
    ///
    /// # Errors
    /// As [`Source::load`], and if a flag does not fit the format.
    pub fn of(path: Option<&Path>, sets: &[Set]) -> Result<Self, ConfigError> {
        let source = match path {
            Some(path) => Self::load(path)?,
            None => Self::default(),
        };
        source.with(sets)
    }

    /// Parses the content of a file.
    ///
    /// # Errors
    /// If it is not YAML, or has an unknown key or an invalid value.
    pub fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        let failed = |problem: Problem| ConfigError {
            place: Place::File {
                path: path.to_owned(),
                line: problem.line,
            },
            key: problem.key,
            message: problem.message,
        };
        let config = yaml::parse(&text).map_err(failed)?;
        let value = yaml::document::read(&text).map_err(failed)?;
        known_keys(&text, &value).map_err(failed)?;
        let source = Self {
            config,
            value,
            path: Some(path.to_owned()),
            now: text.clone(),
            text,
            sets: Vec::new(),
        };
        source.configured()?;
        source.check_head()?;
        Ok(source)
    }

    fn with(mut self, sets: &[Set]) -> Result<Self, ConfigError> {
        if sets.is_empty() {
            return Ok(self);
        }
        self.sets = sets.to_vec();
        self.changed(|value| {
            for set in sets {
                set.apply(value);
            }
        })
    }

    /// The same document, with the values of `running` for these keys.
    ///
    /// # Errors
    /// If the result is invalid.
    pub fn keeping(self, keys: &[String], running: &Self) -> Result<Self, ConfigError> {
        if keys.is_empty() {
            return Ok(self);
        }
        self.changed(|document| {
            for key in keys {
                match sets::at(&running.value, key) {
                    Value::Null => sets::remove(document, key),
                    value => sets::replace(document, key, value),
                }
            }
        })
    }

    /// Changes the document, which is an empty one without a file, and decodes it again.
    fn changed(mut self, change: impl FnOnce(&mut Value)) -> Result<Self, ConfigError> {
        if !self.value.is_object() {
            self.value = serde_json::json!({ "apiVersion": API_VERSION });
        }
        change(&mut self.value);
        // Through text, so that errors have the same messages as those of a file.
        let text = yaml::document::write(&self.value);
        let failed = |problem: Problem| ConfigError {
            place: Place::Set,
            key: problem.key,
            message: problem.message,
        };
        self.config = yaml::parse(&text).map_err(failed)?;
        known_keys(&text, &self.value).map_err(failed)?;
        self.now = text;
        self.configured()?;
        self.check_head()?;
        Ok(self)
    }

    /// The same document with the values of flags, which take precedence.
    ///
    /// # Errors
    /// If the result is invalid.
    pub fn with_flags(&self, flags: &[(String, Value)]) -> Result<Self, ConfigError> {
        if flags.is_empty() {
            return Ok(self.clone());
        }
        self.clone().changed(|document| {
            for (key, value) in flags {
                sets::replace(document, key, value.clone());
            }
        })
    }

    /// Every controller of this build with its settings.
    ///
    /// # Errors
    /// If a value is invalid, whether or not its controller runs.
    pub fn configured(&self) -> Result<Vec<Arc<dyn Configured>>, ConfigError> {
        let each = CONTROLLERS.iter().map(|controller| self.one(controller));
        each.collect()
    }

    fn one(&self, controller: &Controller) -> Result<Arc<dyn Configured>, ConfigError> {
        (controller.configure)(&Section::new(&self.now, controller.key)).map_err(|problem| {
            let Problem { line, key, message } = problem;
            match (&self.path, line, key) {
                // Errors name the line of the file's text.
                (Some(path), Some(line), key) if self.now == self.text => ConfigError {
                    place: Place::File {
                        path: path.clone(),
                        line: Some(line),
                    },
                    key,
                    message,
                },
                (_, None, Some(key)) => self.error(key, message),
                (_, _, key) => ConfigError {
                    place: Place::Set,
                    key,
                    message,
                },
            }
        })
    }

    fn check_head(&self) -> Result<(), ConfigError> {
        let Some(version) = &self.config.api_version else {
            let message = if self.value.is_null() {
                "the file is empty or truncated"
            } else {
                "the key `apiVersion` is missing: add it"
            };
            return Err(self.at_the_head(message));
        };
        if version != API_VERSION {
            let message = format!(
                "unknown apiVersion {version:?}: this version of Belayer reads {API_VERSION}"
            );
            return Err(self.error("apiVersion", message));
        }
        match self.config.kind.as_deref() {
            Some(kind) if kind != KIND => {
                let message = format!("invalid kind {kind:?}: use {KIND}");
                Err(self.error("kind", message))
            }
            _ => Ok(()),
        }
    }

    fn at_the_head(&self, message: &str) -> ConfigError {
        ConfigError {
            place: match &self.path {
                Some(path) => Place::File {
                    path: path.clone(),
                    line: Some(1),
                },
                None => Place::Set,
            },
            key: None,
            message: message.to_owned(),
        }
    }

    /// Path of the file, if any.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Content of the file, without `--set`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The merged document.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Where a key was set: a line of the file, or `--set`.
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

    /// An error about a key.
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

/// Keys of the process.
const KEYS: &[&str] = &[
    "apiVersion",
    "kind",
    "controllers",
    "dryRun",
    "featureGates",
    "leaderElection",
    "limits",
    "endpoints",
    "logging",
    #[cfg(all(feature = "node-agent", target_os = "linux"))]
    "nodeAgent",
];

/// Rejects unknown keys.
fn known_keys(text: &str, value: &Value) -> Result<(), Problem> {
    let controllers = CONTROLLERS.iter().map(|controller| controller.key);
    let known: Vec<&str> = KEYS.iter().copied().chain(controllers).collect();
    let given = value.as_object().into_iter().flatten().map(|(key, _)| key);
    let mut unknown = given.filter(|key| !known.contains(&key.as_str()));
    match unknown.next() {
        None => Ok(()),
        Some(key) => Err(Problem {
            line: yaml::line_of(text, key),
            key: Some(key.clone()),
            message: format!("unknown key `{key}`: {}", suggest::suggestion(key, &known)),
        }),
    }
}

#[cfg(test)]
#[cfg(feature = "pod-finalizer")]
mod tests;
