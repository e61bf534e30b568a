//! Every key below `pvcProtection` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key::live("pvcProtection.workers", "1 to 1024", "32", "Claims worked on at once.").flag("--workers"),
    Key::live("pvcProtection.finalizer", "finalizer", "", "The finalizer that PVCs are held by: `belayer.dev/pvc-protection` beside kube-controller-manager's own controller, `kubernetes.io/pvc-protection` in its place. If left out, PVCs get no finalizer: Belayer only reports which pods they wait for.").flag("--pvc-protection-finalizer"),
];
