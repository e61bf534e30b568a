//! A controller's key of the configuration file.
//!
//! ```
//! use belayer_controller::config::Section;
//!
//! let section = Section::new("queues: {length: many}", "queues");
//! let error = section.read::<std::collections::BTreeMap<String, u32>>().unwrap_err();
//! assert!(error.to_string().contains("expected a non-negative integer"), "{error}");
//! ```

pub mod suggest;
pub mod yaml;

use serde::de::DeserializeOwned;

pub use yaml::Problem;

/// When a change of a key takes effect. Part of a [`Key`]. Keys are declared as in the [crate's
/// example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// While the process runs.
    Live,
    /// With the next start.
    Restart,
}

/// One key of the configuration file. The [crate's example](crate) has one.
#[derive(Debug)]
pub struct Key {
    /// From the root of the file; `[]` is every item of a list.
    pub path: &'static str,
    /// The accepted values, including their unit.
    pub takes: &'static str,
    /// The default as written in a file; empty if there is none.
    pub default: &'static str,
    /// Its own flag, if it has one; any key can be set with `--set`.
    pub flag: &'static str,
    /// When a change takes effect.
    pub reload: Reload,
    /// Its purpose.
    pub about: &'static str,
}

impl Key {
    /// A key whose change takes effect while the process runs.
    pub const fn live(
        path: &'static str,
        takes: &'static str,
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            path,
            takes,
            default,
            flag: "",
            reload: Reload::Live,
            about,
        }
    }

    /// A key whose change takes effect with the next start.
    pub const fn restart(
        path: &'static str,
        takes: &'static str,
        default: &'static str,
        flag: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            path,
            takes,
            default,
            flag,
            reload: Reload::Restart,
            about,
        }
    }

    /// The same with a flag of its own.
    #[must_use]
    pub const fn flag(self, flag: &'static str) -> Self {
        Self { flag, ..self }
    }
}

/// One controller's key of a configuration file. The [module's example](self) reads an invalid
/// value.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    text: &'a str,
    key: &'a str,
}

impl<'a> Section<'a> {
    /// The key `key` of a file; an empty text has no keys.
    pub fn new(text: &'a str, key: &'a str) -> Self {
        Self { text, key }
    }

    /// The value of the key; the default if it is missing.
    ///
    /// # Errors
    /// Line, key and reason, if a value is invalid.
    pub fn read<C: DeserializeOwned + Default>(&self) -> Result<C, Problem> {
        Ok(yaml::parse_key(self.text, self.key)?.unwrap_or_default())
    }

    /// The checked value of the key; the default if it is missing.
    ///
    /// # Errors
    /// Line, key and reason, if a value is invalid.
    pub fn settings<C, S>(&self) -> Result<S, Problem>
    where
        C: DeserializeOwned + Default + TryInto<S>,
        C::Error: Into<belayer_holds::selection::config::ConfigError>,
    {
        self.read::<C>()?.try_into().map_err(|error| {
            let error = error.into();
            Problem {
                line: None,
                key: Some(error.path),
                message: error.message,
            }
        })
    }
}
