//! The key `nodeAgent` of the configuration file: its written and its checked form.
//!
//! ```
//! use belayer_node_agent::config::{Flags, NodeAgentConfig};
//!
//! // Without roots there is nothing that may be removed.
//! assert!(NodeAgentConfig::default().settings(Flags::default()).is_err());
//! ```

use serde::Deserialize;

use crate::command::{Command, CommandError};
use crate::host::Host;
use crate::layout::{Layout, LayoutError};

/// The key; every path in an error starts with it.
pub const KEY: &str = "nodeAgent";

/// Pods wiped concurrently, by default.
const DEFAULT_WORKERS: usize = 16;

/// Largest number of pods wiped concurrently; more would only wait for the disk.
const MAX_WORKERS: usize = 256;

/// Default time limit of a hook, in seconds.
const HOOK_SECONDS: u64 = 5;

/// Largest time limit of a hook, in seconds: as long as a removal.
const MAX_HOOK_SECONDS: u64 = 10;

/// Default time limit of a handler, in seconds.
const HANDLER_SECONDS: u64 = 600;

/// Checked settings with all defaults. The [module's example](self) refuses an empty
/// configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directories of pods.
    pub layout: Layout,
    /// The node's file systems, from which cgroups and processes are read.
    pub host: Host,
    /// Pods wiped concurrently.
    pub workers: usize,
    /// Programs that are run for a pod while it is starting.
    pub handlers: Vec<Command>,
    /// Programs that are run before a pod's directories are removed.
    pub hooks: Vec<Command>,
}

/// An invalid key. The [module's example](self) refuses an empty configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    /// The key from the root of the file, such as `nodeAgent.hooks[0].command`.
    pub path: String,
    /// What is wrong, and how to correct it.
    pub message: String,
}

/// The key as written; omitted fields have defaults. The [module's example](self) refuses an empty
/// configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAgentConfig {
    /// Directories that every removal is confined to. `--root` takes precedence.
    #[serde(default)]
    pub roots: Vec<String>,
    /// Path templates of a pod's directories; by default `{podUID}` in each root. `--path` takes
    /// precedence.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Path of the node's `/`; default `/`. `proc`, `sys/fs/cgroup` and, if it exists,
    /// `var/lib/kubelet/pods` are read below it. `--host-root` takes precedence.
    pub host_root: Option<String>,
    /// See [`Settings::workers`].
    pub workers: Option<usize>,
    /// See [`Settings::handlers`].
    #[serde(default)]
    pub handlers: Vec<CommandConfig>,
    /// See [`Settings::hooks`].
    #[serde(default)]
    pub hooks: Vec<CommandConfig>,
}

/// A configured program. The [module's example](self) refuses an empty configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandConfig {
    /// Name in messages; default: the program.
    pub name: Option<String>,
    /// Its absolute path and its arguments, with the placeholders `{podUID}`, `{podName}` and
    /// `{podNamespace}`.
    pub command: Vec<String>,
    /// Time limit, in seconds.
    pub timeout_seconds: Option<u64>,
}

/// Command-line flags; they take precedence over the file. The [module's example](self) refuses an
/// empty configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--root`.
    pub roots: Vec<String>,
    /// `--path`.
    pub paths: Vec<String>,
    /// `--host-root`.
    pub host_root: Option<String>,
}

impl NodeAgentConfig {
    /// Checks everything that can be checked without accessing the node.
    ///
    /// # Errors
    ///
    /// If a value is invalid; the error names the key or the flag.
    pub fn settings(self, flags: Flags) -> Result<Settings, ConfigError> {
        let from_flags = (!flags.roots.is_empty(), !flags.paths.is_empty());
        let roots = if from_flags.0 {
            flags.roots
        } else {
            self.roots
        };
        let paths = if from_flags.1 {
            flags.paths
        } else {
            self.paths
        };
        let layout = Layout::new(roots, paths).map_err(|error| {
            let path = match (error.is_about_roots(), from_flags) {
                (true, (true, _)) => "--root".to_owned(),
                (true, (false, _)) => format!("{KEY}.roots"),
                (false, (_, true)) => "--path".to_owned(),
                (false, (_, false)) => format!("{KEY}.paths"),
            };
            let message = match &error {
                LayoutError::NoRoot => format!("{error}; give --root or {KEY}.roots"),
                other => other.to_string(),
            };
            ConfigError { path, message }
        })?;
        let workers = self.workers.unwrap_or(DEFAULT_WORKERS);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(ConfigError {
                path: format!("{KEY}.workers"),
                message: format!("must be from 1 to {MAX_WORKERS}, not {workers}"),
            });
        }
        Ok(Settings {
            layout,
            host: host(flags.host_root.or(self.host_root))?,
            workers,
            handlers: commands("handlers", self.handlers, HANDLER_SECONDS, 3_600)?,
            hooks: commands("hooks", self.hooks, HOOK_SECONDS, MAX_HOOK_SECONDS)?,
        })
    }
}

fn host(root: Option<String>) -> Result<Host, ConfigError> {
    let root = root.unwrap_or_else(|| "/".to_owned());
    if root.starts_with('/') {
        return Ok(Host::at(root));
    }
    Err(ConfigError {
        path: format!("{KEY}.hostRoot"),
        message: format!("{root:?} is not an absolute path (example: /host)"),
    })
}

fn commands(
    key: &str,
    configs: Vec<CommandConfig>,
    default_seconds: u64,
    most_seconds: u64,
) -> Result<Vec<Command>, ConfigError> {
    let checked = configs.into_iter().enumerate().map(|(index, config)| {
        let error = |field: &str, message: String| ConfigError {
            path: format!("{KEY}.{key}[{index}].{field}"),
            message,
        };
        let seconds = config.timeout_seconds.unwrap_or(default_seconds);
        if seconds > most_seconds {
            let message = format!("must be from 1 to {most_seconds}, not {seconds}");
            return Err(error("timeoutSeconds", message));
        }
        let name = config.name.or_else(|| config.command.first().cloned());
        let name = name.unwrap_or_default();
        Command::new(name, config.command, seconds).map_err(|wrong| match wrong {
            CommandError::Timeout(_) => error("timeoutSeconds", wrong.to_string()),
            wrong => error("command", wrong.to_string()),
        })
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn settings(config: Value, flags: Flags) -> Result<Settings, ConfigError> {
        let config: NodeAgentConfig = serde_json::from_value(config).unwrap();
        config.settings(flags)
    }

    #[test]
    fn a_root_is_enough() {
        let flags = Flags {
            roots: vec!["/ws".into()],
            ..Flags::default()
        };
        let settings = settings(json!({}), flags).unwrap();
        assert_eq!(settings.workers, 16);
        assert_eq!(settings.layout.roots().count(), 1);
        assert!(settings.hooks.is_empty() && settings.handlers.is_empty());
    }

    #[test]
    fn flags_take_precedence_over_the_file() {
        let flags = Flags {
            roots: vec!["/mine".into()],
            paths: vec!["/mine/{podUID}/x".into()],
            ..Flags::default()
        };
        let settings = settings(
            json!({ "roots": ["/ws"], "paths": ["/ws/{podUID}"] }),
            flags,
        );
        let roots: Vec<_> = settings
            .unwrap()
            .layout
            .roots()
            .map(ToOwned::to_owned)
            .collect();
        assert_eq!(roots, [std::path::PathBuf::from("/mine")]);
    }

    #[rstest]
    #[case::no_root(json!({}), "nodeAgent.roots: no root is given")]
    #[case::a_relative_root(json!({ "roots": ["ws"] }), "nodeAgent.roots: \"ws\" is not an absolute path")]
    #[case::a_path_without_uid(json!({ "roots": ["/ws"], "paths": ["/ws/x"] }), "nodeAgent.paths: the path \"/ws/x\" does not contain {podUID}")]
    #[case::a_relative_host_root(json!({ "roots": ["/ws"], "hostRoot": "host" }), "nodeAgent.hostRoot: \"host\" is not an absolute path")]
    #[case::no_workers(json!({ "roots": ["/ws"], "workers": 0 }), "nodeAgent.workers: must be from 1 to 256, not 0")]
    #[case::a_shell_line(json!({ "roots": ["/ws"], "hooks": [{ "command": ["rm -rf /"] }] }), "nodeAgent.hooks[0].command: \"rm -rf /\" must be the absolute path")]
    #[case::a_slow_hook(json!({ "roots": ["/ws"], "hooks": [{ "command": ["/bin/x"], "timeoutSeconds": 60 }] }), "nodeAgent.hooks[0].timeoutSeconds: must be from 1 to 10, not 60")]
    #[case::an_empty_handler(json!({ "roots": ["/ws"], "handlers": [{ "command": [] }] }), "nodeAgent.handlers[0].command: a command needs a program")]
    fn an_error_names_its_key(#[case] config: Value, #[case] says: &str) {
        let error = settings(config, Flags::default()).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn an_error_names_its_flag() {
        let flags = Flags {
            roots: vec!["/".into()],
            ..Flags::default()
        };
        let error = settings(json!({}), flags).unwrap_err();
        assert_eq!(error.path, "--root");
    }
}
