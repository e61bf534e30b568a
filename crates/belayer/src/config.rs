//! The configuration file.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[cfg(any(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pod-recreation",
    feature = "pvc-protection"
))]
use crate::controllers::Controller;
use crate::controllers::Controllers;
use crate::operator::Components;
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

/// A file and what it says; or that there is none.
#[derive(Debug, Clone, Default)]
pub struct Source {
    path: PathBuf,
    text: String,
    /// What it says; the defaults if there is no file.
    pub config: FileConfig,
}

/// What is wrong with the file: one line that names file, line and key, and says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<u64>,
    key: Option<String>,
    message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
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
            file: path.to_owned(),
            line: None,
            key: None,
            message: format!("cannot be read: {error}"),
        })?;
        Self::parse(path, text)
    }

    fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        let config: FileConfig = yaml::parse(&text).map_err(|problem| ConfigError {
            file: path.to_owned(),
            line: problem.line,
            key: problem.key,
            message: problem.message,
        })?;
        let source = Self {
            path: path.to_owned(),
            text,
            config,
        };
        if source.config.api_version != API_VERSION {
            return Err(source.error(
                "apiVersion",
                format!(
                    "{:?} is not known: this version reads {API_VERSION}",
                    source.config.api_version
                ),
            ));
        }
        if let Some(kind) = source.config.kind.as_deref().filter(|kind| *kind != KIND) {
            let message = format!("{kind:?} is no configuration: the kind is {KIND}");
            return Err(source.error("kind", message));
        }
        Ok(source)
    }

    /// Whether there is a file.
    pub fn is_file(&self) -> bool {
        !self.path.as_os_str().is_empty()
    }

    /// An error about a key of this file, found after it was read.
    pub fn error(&self, key: impl Into<String>, message: impl Into<String>) -> ConfigError {
        let key = key.into();
        ConfigError {
            file: self.path.clone(),
            line: yaml::line_of(&self.text, &key),
            key: Some(key),
            message: message.into(),
        }
    }

    /// What the controllers that run are to do. The keys of the others are checked as well: what
    /// is wrong in a file is wrong whoever runs.
    ///
    /// `workers` is what a flag says: it counts more than the file.
    ///
    /// # Errors
    /// If a value makes no sense.
    pub fn components(
        &self,
        controllers: &Controllers,
        workers: Option<usize>,
    ) -> Result<Components, ConfigError> {
        #[cfg(not(any(
            feature = "pod-finalizer",
            feature = "workflow-finalizer",
            feature = "pod-recreation",
            feature = "pvc-protection"
        )))]
        let _ = (controllers, workers);
        Ok(Components {
            #[cfg(feature = "pod-finalizer")]
            pod_finalizer: {
                let settings = self.pod_finalizer(workers)?;
                let on = controllers.contains(Controller::PodFinalizer);
                on.then_some(settings)
            },
            #[cfg(feature = "pod-recreation")]
            pod_recreation: {
                let settings = self.pod_recreation(workers)?;
                let on = controllers.contains(Controller::PodRecreation);
                on.then_some(settings)
            },
            #[cfg(feature = "pvc-protection")]
            pvc_protection: {
                let settings = self.pvc_protection(workers)?;
                let on = controllers.contains(Controller::PvcProtection);
                on.then_some(settings)
            },
            #[cfg(feature = "workflow-finalizer")]
            workflow_finalizer: {
                let settings = self.workflow_finalizer(workers)?;
                let on = controllers.contains(Controller::WorkflowFinalizer);
                on.then_some(settings)
            },
        })
    }

    /// Checks the key of workflow-finalizer. Where there is no file, or no key, the defaults hold.
    ///
    /// `workers` is what a flag says: it counts more than the file.
    ///
    /// # Errors
    /// If a value makes no sense.
    #[cfg(feature = "workflow-finalizer")]
    pub fn workflow_finalizer(
        &self,
        workers: Option<usize>,
    ) -> Result<belayer_workflow_finalizer::config::Settings, ConfigError> {
        let mut config = self.config.workflow_finalizer.clone().unwrap_or_default();
        config.workers = workers.or(config.workers);
        config
            .try_into()
            .map_err(|error: belayer_core::selection::config::ConfigError| {
                self.error(error.path, error.message)
            })
    }

    /// Checks the key of pod-finalizer. Where there is no file, or no key, the defaults hold.
    ///
    /// `workers` is what a flag says: it counts more than the file.
    ///
    /// # Errors
    /// If a value makes no sense.
    #[cfg(feature = "pod-finalizer")]
    pub fn pod_finalizer(
        &self,
        workers: Option<usize>,
    ) -> Result<belayer_pod_finalizer::profile::config::Settings, ConfigError> {
        let mut config = self.config.pod_finalizer.clone().unwrap_or_default();
        config.workers = workers.or(config.workers);
        config.try_into().map_err(
            |error: belayer_pod_finalizer::profile::config::ConfigError| {
                self.error(error.path, error.message)
            },
        )
    }

    /// Checks the key of pod-recreation. Where there is no file, or no key, the defaults hold.
    ///
    /// `workers` is what a flag says: it counts more than the file.
    ///
    /// # Errors
    /// If a value makes no sense.
    #[cfg(feature = "pod-recreation")]
    pub fn pod_recreation(
        &self,
        workers: Option<usize>,
    ) -> Result<belayer_pod_recreation::Settings, ConfigError> {
        let mut config = self.config.pod_recreation.clone().unwrap_or_default();
        config.workers = workers.or(config.workers);
        config
            .try_into()
            .map_err(|error: belayer_pod_recreation::config::ConfigError| {
                self.error(error.path, error.message)
            })
    }

    /// Checks the key of pvc-protection. Where there is no file, or no key, the defaults hold.
    ///
    /// `workers` is what a flag says: it counts more than the file.
    ///
    /// # Errors
    /// If a value makes no sense.
    #[cfg(feature = "pvc-protection")]
    pub fn pvc_protection(
        &self,
        workers: Option<usize>,
    ) -> Result<belayer_pvc_protection::Settings, ConfigError> {
        let mut config = self.config.pvc_protection.clone().unwrap_or_default();
        config.workers = workers.or(config.workers);
        config
            .try_into()
            .map_err(|error: belayer_pvc_protection::config::ConfigError| {
                self.error(error.path, error.message)
            })
    }
}

#[cfg(all(test, feature = "pod-finalizer"))]
mod tests;
