//! PVCs in scenarios.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::conditions;
use super::objects::{PodBuilder, pvc};
use crate::control_plane::PvcController;
use crate::kinds;
use crate::wait::SOON;

/// Belayer's hold (finalizer) on PVCs. A literal on purpose: this name is a promise to users.
pub const PVC_HOLD: &str = "belayer.dev/pvc-protection";

/// The finalizer of Kubernetes' own controller.
pub const KUBERNETES_PVC_HOLD: &str = "kubernetes.io/pvc-protection";

const WINDOW: Duration = Duration::from_secs(3);

impl Cluster {
    /// The PVCs of the scenario's namespace.
    pub fn pvcs(&self) -> Api<DynamicObject> {
        kinds::pvcs(self.client(), self.namespace())
    }

    /// Creates a PVC and waits until it has a hold.
    pub async fn held_pvc(&self, name: &str) -> Result<()> {
        self.create_pvc(name, json!({})).await?;
        self.pvc_is_held(name, PVC_HOLD).await
    }

    /// Creates a PVC with further metadata.
    pub async fn create_pvc(&self, name: &str, metadata: Value) -> Result<DynamicObject> {
        self.create_pvc_from(pvc(name, metadata)?).await
    }

    /// Creates a PVC of a storage class, which need not exist if a volume of it does.
    pub async fn create_pvc_of_class(&self, name: &str, class: &str) -> Result<DynamicObject> {
        let mut document = pvc(name, json!({}))?;
        document.data["spec"]["storageClassName"] = class.into();
        self.create_pvc_from(document).await
    }

    async fn create_pvc_from(&self, document: DynamicObject) -> Result<DynamicObject> {
        let created = self.pvcs().create(&PostParams::default(), &document).await;
        created.with_context(|| format!("create the PVC {}", document.name_any()))
    }

    /// Deletes a PVC without waiting for its removal.
    pub async fn delete_pvc(&self, name: &str) -> Result<()> {
        let deleted = self.pvcs().delete(name, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .with_context(|| format!("delete the PVC {name}"))
    }

    /// Waits until a PVC has a hold.
    pub async fn pvc_is_held(&self, name: &str, hold: &str) -> Result<()> {
        let what = format!("the PVC {name} has {hold}");
        conditions::is_held(&self.pvcs(), name, hold, &what).await?;
        Ok(())
    }

    /// Waits until a hold is removed from a PVC.
    pub async fn pvc_is_not_held(&self, name: &str, hold: &str) -> Result<()> {
        let what = format!("the PVC {name} has lost {hold}");
        conditions::is_not_held(&self.pvcs(), name, hold, &what).await
    }

    /// Waits until a PVC is removed.
    pub async fn pvc_is_removed(&self, name: &str) -> Result<()> {
        let what = format!("the PVC {name} is removed");
        conditions::is_removed(&self.pvcs(), name, SOON, &what).await
    }

    /// Waits until Belayer has caught up, then checks that the PVC keeps a hold for a while.
    pub async fn pvc_stays_held(&self, name: &str, hold: &str) -> Result<()> {
        self.pvcs_have_caught_up(hold).await?;
        let what = format!("{name} must keep {hold}");
        conditions::keeps_hold(&self.pvcs(), name, hold, WINDOW, &what).await
    }

    /// Waits until Belayer has processed all earlier changes of PVCs: a PVC created now gets its hold, and
    /// is removed after its deletion.
    pub async fn pvcs_have_caught_up(&self, hold: &str) -> Result<()> {
        let name = format!("sentinel-{}", jiff::Timestamp::now().as_microsecond());
        self.create_pvc(&name, json!({})).await?;
        self.pvc_is_held(&name, hold).await?;
        self.delete_pvc(&name).await?;
        self.pvc_is_removed(&name).await
    }

    /// A node of the cluster, or the name of a missing one if the cluster has none.
    pub async fn any_node(&self) -> Result<String> {
        let nodes = kinds::nodes(self.client())
            .list(&ListParams::default())
            .await?;
        let first = nodes.items.into_iter().next();
        Ok(first
            .and_then(|node| node.metadata.name)
            .unwrap_or_else(|| "nowhere".into()))
    }

    /// Creates a pod that is bound to a node at creation.
    pub async fn bound(&self, pod: PodBuilder) -> Result<DynamicObject> {
        self.create(&pod.on_node(&self.any_node().await?)).await
    }

    /// Removes a pod without grace.
    pub async fn remove(&self, pod: &str) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(pod, &now).await?;
        Ok(())
    }

    /// A merge patch on a PVC, as from any other client.
    pub async fn merge_pvc(&self, name: &str, patch: Value) -> Result<()> {
        self.pvcs()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Switches kube-controller-manager's PVC protection controller; where there is none, it counts as off.
    pub async fn switch_pvc_controller(&self, pvcs: PvcController) -> Result<()> {
        self.backend().switch_pvc_controller(pvcs).await
    }
}
