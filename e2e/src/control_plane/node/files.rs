//! The configuration files of a real node.

use std::path::Path;

use serde_json::{Value, json};

use super::super::network::node_address;

/// The image of sandbox containers.
pub(super) const PAUSE_IMAGE: &str = "registry.invalid/pause:1";

/// containerd: everything that it writes is in `dir`, and its runtime is `runc`.
pub(super) fn containerd(dir: &Path, runc: &Path, plugins: &Path) -> String {
    let (dir, runc, plugins) = (dir.display(), runc.display(), plugins.display());
    format!(
        r#"version = 3
root = '{dir}/containerd'
state = '{dir}/state'

[grpc]
address = '{dir}/containerd.sock'

[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.cri.v1.images']
snapshotter = 'overlayfs'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE_IMAGE}'

[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
# runc fails without CAP_SYS_RESOURCE if it has to lower a score.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{plugins}']
conf_dir = '{dir}/cni'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{runc}'
SystemdCgroup = false
"#
    )
}

/// The pod network: a bridge of the node's own.
pub(super) fn cni(dir: &Path, index: usize) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": format!("pods-{}", index + 1),
            "isGateway": true,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": dir.join("addresses"),
                "ranges": [[{ "subnet": format!("10.244.{}.0/24", index + 1) }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
}

/// The kubelet. Its API is open, within the network namespace.
pub(super) fn kubelet(dir: &Path, index: usize, cgroup: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "address": node_address(index),
        "healthzPort": 0,
        "readOnlyPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "resolvConf": "",
        "containerRuntimeEndpoint": format!("unix://{}/containerd.sock", dir.display()),
        "podLogsDir": dir.join("logs"),
        "volumePluginDir": dir.join("plugins"),
        "nodeStatusUpdateFrequency": "2s",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%" },
    })
}
