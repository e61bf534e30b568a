//! Feature gates, as in Kubernetes: switches for features that are not stable.

use std::collections::BTreeMap;
use std::fmt;

use belayer_controller::config::suggest;

/// A feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FeatureGate {
    /// Reloads a changed configuration file while the process runs.
    ConfigReload,
    /// Lets profiles delete pods whose workflow requests it.
    PodCleanup,
}

/// Maturity of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// May change or be removed; off by default.
    Alpha,
    /// Stays in some form; on by default.
    Beta,
}

impl FeatureGate {
    /// All gates, sorted by name.
    pub const ALL: &[Self] = &[Self::ConfigReload, Self::PodCleanup];

    /// Name of the gate.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigReload => "ConfigReload",
            Self::PodCleanup => "PodCleanup",
        }
    }

    /// Maturity of the feature.
    pub fn stage(self) -> Stage {
        match self {
            Self::ConfigReload | Self::PodCleanup => Stage::Beta,
        }
    }

    /// Short description.
    pub fn about(self) -> &'static str {
        match self {
            Self::ConfigReload => "read a changed configuration file while running",
            Self::PodCleanup => "`cleanup` of profiles deletes pods",
        }
    }

    fn is_on_by_default(self) -> bool {
        self.stage() == Stage::Beta
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
        })
    }
}

/// An invalid list of gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeatureGatesError {
    /// No gate has this name.
    #[error("unknown feature gate {name:?}: {}", suggest::suggestion(name, &names()))]
    Unknown {
        /// The given name.
        name: String,
    },
    /// It is not of the form `NAME=true`.
    #[error("invalid feature gate {0:?}: write NAME=true or NAME=false")]
    Form(String),
}

fn names() -> Vec<&'static str> {
    FeatureGate::ALL.iter().map(|gate| gate.name()).collect()
}

/// Explicitly set gates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureGates(BTreeMap<FeatureGate, bool>);

impl FeatureGates {
    /// Whether the gate is on.
    pub fn is_on(&self, gate: FeatureGate) -> bool {
        let set = self.0.get(&gate).copied();
        set.unwrap_or_else(|| gate.is_on_by_default())
    }

    /// Sets a gate by name.
    ///
    /// # Errors
    /// If no gate has this name.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), FeatureGatesError> {
        let gate = FeatureGate::ALL.iter().find(|gate| gate.name() == name);
        let gate = gate.ok_or_else(|| FeatureGatesError::Unknown {
            name: name.to_owned(),
        })?;
        self.0.insert(*gate, on);
        Ok(())
    }

    /// Sets the gates of a list such as that of `--feature-gates`: `A=true`, `B=false`.
    ///
    /// # Errors
    /// If an item has another form, or names no gate.
    pub fn set_all<S: AsRef<str>>(&mut self, items: &[S]) -> Result<(), FeatureGatesError> {
        for item in items.iter().map(|item| item.as_ref().trim()) {
            let form = || FeatureGatesError::Form(item.to_owned());
            let (name, value) = item.split_once('=').ok_or_else(form)?;
            let on = value.trim().parse().map_err(|_| form())?;
            self.set(name.trim(), on)?;
        }
        Ok(())
    }
}

impl fmt::Display for FeatureGates {
    /// Every gate with its value: `A=true (beta)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gate) in FeatureGate::ALL.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let (name, on, stage) = (gate.name(), self.is_on(*gate), gate.stage());
            write!(f, "{comma}{name}={on} ({stage})")?;
        }
        Ok(())
    }
}

/// The help of `--feature-gates`: every gate, its stage and its description.
pub(crate) fn help() -> String {
    let gates = FeatureGate::ALL.iter().map(|gate| {
        let (name, on, stage) = (gate.name(), gate.is_on_by_default(), gate.stage());
        format!("\n{name}={on} ({stage}): {}", gate.about())
    });
    let head = "Feature gates (example: A=true,B=false). All gates with their defaults:";
    std::iter::once(head.to_owned()).chain(gates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn the_last_setting_takes_precedence_over_the_default() {
        let mut gates = FeatureGates::default();
        assert!(gates.is_on(FeatureGate::ConfigReload));
        gates
            .set_all(&["ConfigReload=false", " PodCleanup = true "])
            .unwrap();
        assert!(!gates.is_on(FeatureGate::ConfigReload) && gates.is_on(FeatureGate::PodCleanup));
        gates.set_all(&["ConfigReload=true"]).unwrap();
        assert!(gates.is_on(FeatureGate::ConfigReload));
        assert_eq!(
            gates.to_string(),
            "ConfigReload=true (beta), PodCleanup=true (beta)"
        );
    }

    #[rstest]
    #[case(
        "ConfigReloads=true",
        "unknown feature gate \"ConfigReloads\": did you mean `ConfigReload`?"
    )]
    #[case(
        "Teleport=true",
        "unknown feature gate \"Teleport\": use one of ConfigReload, PodCleanup"
    )]
    #[case(
        "ConfigReload",
        "invalid feature gate \"ConfigReload\": write NAME=true or NAME=false"
    )]
    #[case(
        "ConfigReload=yes",
        "invalid feature gate \"ConfigReload=yes\": write NAME=true or NAME=false"
    )]
    #[case("", "invalid feature gate \"\": write NAME=true or NAME=false")]
    fn invalid_items_are_rejected(#[case] item: &str, #[case] says: &str) {
        let error = FeatureGates::default().set_all(&[item]).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
}
