//! The building blocks of scenarios: handles of a cluster and of a Belayer process, and ways to wait.

mod argo;
pub mod belayer;
mod clean_up;
mod cluster;
mod conditions;
mod drain;
mod installed;
mod machine;
mod new_cluster;
mod objects;
mod outcome;
mod packed;
mod pods;
mod proxy;
mod pvcs;
mod real_argo;
mod runner;
mod scenario;
mod tenant;
mod workflows;

pub(crate) use self::argo::NODE_ID;
pub use self::argo::{Argo, ArgoOptions, Nodes};
pub use self::belayer::{Belayer, BelayerOptions};
pub use self::cluster::{Cluster, HOME, OWN_NODE, Setting};
pub use self::drain::{BELAYERS, HeldObjects};
pub(crate) use self::installed::LEASE;
pub use self::installed::{Installed, lease_holder, manifests, save_logs};
pub use self::new_cluster::on_new_cluster;
pub use self::objects::{
    HOLD, NO_SCHEDULER, PodBuilder, WORKFLOW_HOLD, Workflow, ended, finalizers, pod, pvc, workflow,
};
pub use self::outcome::Summary;
pub use self::packed::{Packing, largest_nodes};
pub use self::proxy::Proxy;
pub use self::pvcs::{KUBERNETES_PVC_HOLD, PVC_HOLD};
pub use self::real_argo::RealArgo;
pub use self::runner::{Keep, RunOptions, Which, count, list, names_of, run};
pub use self::scenario::{Load, Scenario, Sharing};
pub use self::tenant::TenantPermissions;
pub use crate::kubectl::Kubectl;
pub use crate::output::Output;
pub(crate) use crate::wait::gone;
pub use crate::wait::{SOON, eventually, throughout};
