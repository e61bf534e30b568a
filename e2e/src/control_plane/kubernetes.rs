//! The releases of Kubernetes whose programs can be built.

use anyhow::{Context, Result};

/// A release of Kubernetes, pinned by a Go module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kubernetes {
    /// It is set at build time, as the programs cannot determine it.
    release: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
}

/// The release of a minor version, with its module in a folder of that name.
macro_rules! release {
    ($minor:literal, $release:literal) => {
        Kubernetes {
            release: $release,
            go_mod: include_str!(concat!("../../control-plane/", $minor, "/go.mod")),
            go_sum: include_str!(concat!("../../control-plane/", $minor, "/go.sum")),
        }
    };
}

impl Kubernetes {
    /// All scenarios run on it. Its module also pins etcd and the kubelet.
    pub const MAIN: Self = Self {
        release: "1.36.3",
        go_mod: include_str!("../../control-plane/go.mod"),
        go_sum: include_str!("../../control-plane/go.sum"),
    };

    /// One release of each supported minor version, the oldest first.
    pub const ALL: [Self; 6] = [
        release!("1.32", "1.32.9"),
        release!("1.33", "1.33.13"),
        release!("1.34", "1.34.4"),
        release!("1.35", "1.35.4"),
        Self::MAIN,
        release!("1.37", "1.37.2"),
    ];

    /// The release of a minor version such as `1.35`. The error names the known ones.
    pub fn of(minor: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|known| known.minor() == minor).with_context(|| {
            let known = Self::ALL.map(Self::minor).join(", ");
            format!("unknown minor version {minor:?} (known: {known})")
        })
    }

    /// Such as `1.36.3`.
    pub const fn release(self) -> &'static str {
        self.release
    }

    /// Such as `1.36`.
    pub fn minor(self) -> &'static str {
        let end = self.release.rfind('.');
        &self.release[..end.unwrap_or(self.release.len())]
    }

    /// Path and text of each file of its module.
    pub(super) fn files(self) -> Vec<(&'static str, &'static str)> {
        vec![("go.mod", self.go_mod), ("go.sum", self.go_sum)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::Program;

    #[test]
    fn every_release_is_the_pinned_one_and_has_the_programs() {
        for kubernetes in Kubernetes::ALL {
            let release = kubernetes.release();
            let go_mod = kubernetes.go_mod;
            assert!(
                go_mod.contains(&format!("k8s.io/kubernetes v{release}\n"))
                    || go_mod.contains(&format!("k8s.io/kubernetes v{release} ")),
                "{release}"
            );
            let staging = format!("=> k8s.io/api v0{}\n", release.trim_start_matches('1'));
            assert!(go_mod.contains(&staging), "{release}");
            for program in Program::OF_KUBERNETES {
                let tool = format!("\t{}\n", program.package());
                assert!(go_mod.contains(&tool), "{release}: {program}");
            }
        }
    }

    #[test]
    fn a_minor_version_is_found_and_another_refused() {
        assert_eq!(Kubernetes::of("1.36").unwrap(), Kubernetes::MAIN);
        let refused = Kubernetes::of("1.3").unwrap_err().to_string();
        assert!(refused.contains("known: 1.32, 1.33, "), "{refused}");
    }
}
