//! Feature gates: what can be switched because it is not stable yet, in Kubernetes' manner.

use std::collections::BTreeMap;
use std::fmt;

use belayer_controller::config::suggest;

/// What can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// A changed configuration file is read again while the process runs.
    ConfigReload,
    /// Profiles may have pods deleted whose workflow asks for it.
    PodCleanup,
}

/// How much a gate can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// May change or go; off unless switched on.
    Alpha,
    /// Here to stay in some form; on unless switched off.
    Beta,
}

impl Gate {
    /// All of them, by name.
    pub const ALL: &[Self] = &[Self::ConfigReload, Self::PodCleanup];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigReload => "ConfigReload",
            Self::PodCleanup => "PodCleanup",
        }
    }

    /// How much it can be relied on.
    pub fn stage(self) -> Stage {
        match self {
            Self::ConfigReload | Self::PodCleanup => Stage::Beta,
        }
    }

    /// What it switches, in half a line.
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

/// A list of gates that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatesError {
    /// No gate has this name.
    #[error("unknown feature gate {name:?}: {}", suggest::way_out(name, &names()))]
    Unknown {
        /// What was given.
        name: String,
    },
    /// It is not of the form `NAME=true`.
    #[error("invalid feature gate {0:?}: write NAME=true or NAME=false")]
    Form(String),
}

fn names() -> Vec<&'static str> {
    Gate::ALL.iter().map(|gate| gate.name()).collect()
}

/// How the gates are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gates(BTreeMap<Gate, bool>);

impl Gates {
    /// Whether it is on.
    pub fn is_on(&self, gate: Gate) -> bool {
        let set = self.0.get(&gate).copied();
        set.unwrap_or_else(|| gate.is_on_by_default())
    }

    /// Sets one by its name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), GatesError> {
        let gate = Gate::ALL.iter().find(|gate| gate.name() == name);
        let gate = gate.ok_or_else(|| GatesError::Unknown {
            name: name.to_owned(),
        })?;
        self.0.insert(*gate, on);
        Ok(())
    }

    /// Sets those of a list, as `--feature-gates` has them: `A=true`, `B=false`.
    ///
    /// # Errors
    /// If an item is not of that form, or there is no such gate.
    pub fn set_all<S: AsRef<str>>(&mut self, items: &[S]) -> Result<(), GatesError> {
        for item in items.iter().map(|item| item.as_ref().trim()) {
            let form = || GatesError::Form(item.to_owned());
            let (name, value) = item.split_once('=').ok_or_else(form)?;
            let on = value.trim().parse().map_err(|_| form())?;
            self.set(name.trim(), on)?;
        }
        Ok(())
    }
}

impl fmt::Display for Gates {
    /// Every gate and how it is set: `A=true (beta)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, gate) in Gate::ALL.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let (name, on, stage) = (gate.name(), self.is_on(*gate), gate.stage());
            write!(f, "{comma}{name}={on} ({stage})")?;
        }
        Ok(())
    }
}

/// The help of `--feature-gates`, with every gate, its stage and what it switches.
pub(crate) fn help() -> String {
    let gates = Gate::ALL.iter().map(|gate| {
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
    fn what_is_said_last_counts_and_the_rest_has_its_default() {
        let mut gates = Gates::default();
        assert!(gates.is_on(Gate::ConfigReload));
        gates
            .set_all(&["ConfigReload=false", " PodCleanup = true "])
            .unwrap();
        assert!(!gates.is_on(Gate::ConfigReload) && gates.is_on(Gate::PodCleanup));
        gates.set_all(&["ConfigReload=true"]).unwrap();
        assert!(gates.is_on(Gate::ConfigReload));
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
    fn what_makes_no_sense_is_refused(#[case] item: &str, #[case] says: &str) {
        let error = Gates::default().set_all(&[item]).unwrap_err();
        assert_eq!(error.to_string(), says);
    }

    #[test]
    fn the_help_names_every_gate() {
        let help = help();
        for gate in Gate::ALL {
            assert!(help.contains(gate.name()) && help.contains(gate.about()));
        }
    }
}
