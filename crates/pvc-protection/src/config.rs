//! The key `pvcProtection` of the configuration file: as written, and as checked.

use std::fmt;

use serde::Deserialize;

use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD};
use belayer_holds::selection::config::{Path, workers};

pub(crate) use belayer_holds::selection::config::ConfigError;

/// The key of the configuration file: the root of every path in an error.
pub(crate) const KEY: &str = "pvcProtection";

/// Default number of concurrent workers.
pub(crate) const DEFAULT_WORKERS: usize = 64;

/// Whether PVCs are held, and by which finalizer: beside Kubernetes' own controller or in its place.
///
/// ```
/// use belayer_pvc_protection::Mode;
///
/// assert!(!Mode::Advise.adds_holds());
/// assert_eq!(Mode::InPlace.hold(), "kubernetes.io/pvc-protection");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// PVCs are not held: Belayer reports which pods a PVC waits for, and adds no finalizer. Finalizers from an
    /// earlier configuration are removed (A18).
    #[default]
    Advise,
    /// By Belayer's own finalizer, beside kube-controller-manager's controller.
    Own,
    /// By Kubernetes' finalizer, in place of kube-controller-manager's controller.
    InPlace,
}

impl Mode {
    /// The finalizer that holds PVCs. In [`Mode::Advise`], the finalizer that an earlier configuration added.
    pub fn hold(self) -> &'static str {
        match self {
            Self::Advise | Self::Own => PVC_PROTECTION_HOLD,
            Self::InPlace => KUBERNETES_PVC_PROTECTION,
        }
    }

    /// Whether Belayer adds a finalizer to PVCs.
    pub fn adds_holds(self) -> bool {
        self != Self::Advise
    }

    /// The finalizers that Belayer removes. If it replaces Kubernetes' controller, it removes Kubernetes' finalizer
    /// and its own from before; otherwise it never removes Kubernetes' finalizer.
    pub fn finalizers(self) -> &'static [&'static str] {
        match self {
            Self::Advise | Self::Own => &[PVC_PROTECTION_HOLD],
            Self::InPlace => &[KUBERNETES_PVC_PROTECTION, PVC_PROTECTION_HOLD],
        }
    }

    /// The mode that holds by this finalizer.
    ///
    /// # Errors
    ///
    /// If no mode uses this finalizer.
    pub fn of(finalizer: &str) -> Result<Self, UnknownFinalizer> {
        match finalizer {
            PVC_PROTECTION_HOLD => Ok(Self::Own),
            KUBERNETES_PVC_PROTECTION => Ok(Self::InPlace),
            _ => Err(UnknownFinalizer(finalizer.to_owned())),
        }
    }
}

/// The value of the key `finalizer`; empty if it is not set.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.adds_holds() { self.hold() } else { "" })
    }
}

/// A finalizer by which PVCs cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown finalizer {0:?}: use {PVC_PROTECTION_HOLD} (in addition to kube-controller-manager's controller) \
     or {KUBERNETES_PVC_PROTECTION} (in its place); if the key is not set, PVCs get no finalizer"
)]
pub struct UnknownFinalizer(String);

/// The checked configuration, with defaults filled in. They contain a [`Mode`](crate::Mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of PVCs processed concurrently.
    pub workers: usize,
    /// Whether PVCs are held, and by which finalizer.
    pub mode: Mode,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: DEFAULT_WORKERS,
            mode: Mode::default(),
        }
    }
}

/// The key as written in the file. Omitted keys have their defaults.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PvcProtectionConfig {
    /// See [`Settings::workers`].
    pub workers: Option<usize>,
    /// See [`Settings::mode`].
    pub finalizer: Option<String>,
}

impl TryFrom<PvcProtectionConfig> for Settings {
    type Error = ConfigError;

    fn try_from(config: PvcProtectionConfig) -> Result<Self, ConfigError> {
        let root = Path::root(KEY);
        let workers = workers(&root, config.workers.unwrap_or(DEFAULT_WORKERS))?;
        let mode = match config.finalizer.as_deref() {
            None => Mode::default(),
            Some(name) => Mode::of(name)
                .map_err(|unknown| root.key("finalizer").error(unknown.to_string()))?,
        };
        Ok(Self { workers, mode })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn config(finalizer: Option<&str>, workers: Option<usize>) -> Result<Settings, ConfigError> {
        PvcProtectionConfig {
            workers,
            finalizer: finalizer.map(str::to_owned),
        }
        .try_into()
    }

    #[rstest]
    #[case::a18_advises_if_the_finalizer_is_not_set(None, Mode::Advise)]
    #[case(Some("belayer.dev/pvc-protection"), Mode::Own)]
    #[case(Some("kubernetes.io/pvc-protection"), Mode::InPlace)]
    fn the_finalizer_determines_the_mode(#[case] finalizer: Option<&str>, #[case] mode: Mode) {
        assert_eq!(config(finalizer, None).unwrap().mode, mode);
    }

    #[test]
    fn an_invalid_value_names_its_key() {
        let error = config(Some("example.com/mine"), None).unwrap_err();
        assert_eq!(error.path, "pvcProtection.finalizer");
        assert!(error.message.contains("kubernetes.io/pvc-protection"));
        assert_eq!(
            config(None, Some(0)).unwrap_err().path,
            "pvcProtection.workers"
        );
    }

    #[test]
    fn kubernetes_finalizer_is_removed_only_in_place_of_its_controller() {
        assert!(
            !Mode::Advise
                .finalizers()
                .contains(&KUBERNETES_PVC_PROTECTION)
        );
        assert!(!Mode::Own.finalizers().contains(&KUBERNETES_PVC_PROTECTION));
        assert!(
            Mode::InPlace
                .finalizers()
                .contains(&KUBERNETES_PVC_PROTECTION)
        );
    }
}
