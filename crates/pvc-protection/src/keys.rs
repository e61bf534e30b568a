//! Every key below `pvcProtection` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    Key::live("pvcProtection.workers", "1 to 1024", "64", "Maximum number of PVCs processed concurrently.").flag("--workers"),
    Key::live("pvcProtection.finalizer", "belayer.dev/pvc-protection or kubernetes.io/pvc-protection", "", "The finalizer that holds PVCs: `belayer.dev/pvc-protection` in addition to kube-controller-manager's own controller, `kubernetes.io/pvc-protection` in its place. If left out, PVCs get no finalizer: Belayer only reports which pods they wait for.").flag("--pvc-protection-finalizer"),
];
