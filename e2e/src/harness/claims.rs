//! Claims, as scenarios need them.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::objects::{PodBuilder, claim, finalizers};
use super::wait::{eventually, throughout};
use crate::control_plane::ClaimController;
use crate::kinds;

/// Belayer's own hold on claims. Written out here on purpose: users see this very name.
pub const CLAIM_HOLD: &str = "belayer.dev/pvc-protection";

/// The hold of Kubernetes' own controller.
pub const KUBERNETES_CLAIM_HOLD: &str = "kubernetes.io/pvc-protection";

const SOON: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(3);

impl Cluster {
    /// The claims of the scenario's namespace.
    #[must_use]
    pub fn claims(&self) -> Api<DynamicObject> {
        kinds::claims(self.client(), self.namespace())
    }

    /// Creates a claim and waits until it is held.
    ///
    /// # Errors
    /// When the server refuses it, or it gets no hold.
    pub async fn held_claim(&self, name: &str) -> Result<()> {
        self.create_claim(name, json!({})).await?;
        self.claim_is_held(name, CLAIM_HOLD).await
    }

    /// Creates a claim with more metadata.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create_claim(&self, name: &str, metadata: Value) -> Result<DynamicObject> {
        let document = claim(name, metadata)?;
        let created = self
            .claims()
            .create(&PostParams::default(), &document)
            .await;
        created.with_context(|| format!("create the claim {name}"))
    }

    /// Creates a claim of a storage class, which need not exist where a volume of it does.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create_claim_of_class(&self, name: &str, class: &str) -> Result<DynamicObject> {
        let mut document = claim(name, json!({}))?;
        document.data["spec"]["storageClassName"] = class.into();
        let created = self
            .claims()
            .create(&PostParams::default(), &document)
            .await;
        created.with_context(|| format!("create the claim {name}"))
    }

    /// Deletes a claim without waiting for it to go.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn delete_claim(&self, name: &str) -> Result<()> {
        let deleted = self.claims().delete(name, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .with_context(|| format!("delete the claim {name}"))
    }

    /// Waits until a claim carries a hold.
    ///
    /// # Errors
    /// When it does not get it.
    pub async fn claim_is_held(&self, name: &str, hold: &str) -> Result<()> {
        eventually(&format!("the claim {name} has {hold}"), SOON, async || {
            let seen = self.claims().get(name).await?;
            ensure!(finalizers(&seen).contains(&hold), "{:?}", finalizers(&seen));
            Ok(())
        })
        .await
    }

    /// Waits until a claim has lost a hold.
    ///
    /// # Errors
    /// When it keeps it.
    pub async fn claim_is_not_held(&self, name: &str, hold: &str) -> Result<()> {
        eventually(&format!("the claim {name} lost {hold}"), SOON, async || {
            let Some(seen) = self.claims().get_opt(name).await? else {
                return Ok(());
            };
            ensure!(
                !finalizers(&seen).contains(&hold),
                "{:?}",
                finalizers(&seen)
            );
            Ok(())
        })
        .await
    }

    /// Waits until a claim is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn claim_is_gone(&self, name: &str) -> Result<()> {
        eventually(
            &format!("the claim {name} is gone"),
            SOON,
            async || match self.claims().get_opt(name).await? {
                Some(seen) => bail!("it has {:?}", finalizers(&seen)),
                None => Ok(()),
            },
        )
        .await
    }

    /// Belayer has caught up with everything, and for a while after that the claim keeps a hold.
    ///
    /// # Errors
    /// When it loses it.
    pub async fn claim_stays_held(&self, name: &str, hold: &str) -> Result<()> {
        self.claims_have_caught_up(hold).await?;
        throughout(&format!("{name} must keep {hold}"), WINDOW, async || {
            let seen = self.claims().get(name).await?;
            ensure!(finalizers(&seen).contains(&hold), "{:?}", finalizers(&seen));
            Ok(())
        })
        .await
    }

    /// Waits until Belayer has dealt with what happened to claims before: a claim made now has been
    /// held, and is gone once it was deleted.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn claims_have_caught_up(&self, hold: &str) -> Result<()> {
        let name = format!("sentinel-{}", jiff::Timestamp::now().as_microsecond());
        self.create_claim(&name, json!({})).await?;
        self.claim_is_held(&name, hold).await?;
        self.delete_claim(&name).await?;
        self.claim_is_gone(&name).await
    }

    /// A node of the cluster, or the name of one that does not exist where there is none.
    ///
    /// # Errors
    /// When nodes cannot be listed.
    pub async fn some_node(&self) -> Result<String> {
        let nodes = kinds::nodes(self.client())
            .list(&ListParams::default())
            .await?;
        let first = nodes.items.into_iter().next();
        Ok(first
            .and_then(|node| node.metadata.name)
            .unwrap_or_else(|| "nowhere".into()))
    }

    /// Creates a pod that is bound to a node from the beginning.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn bound(&self, pod: PodBuilder) -> Result<DynamicObject> {
        self.create(&pod.on_node(&self.some_node().await?)).await
    }

    /// Removes a pod at once.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn remove(&self, pod: &str) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(pod, &now).await?;
        Ok(())
    }

    /// A merge patch on a claim, as any other writer would send it.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn merge_claim(&self, name: &str, patch: Value) -> Result<()> {
        self.claims()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Switches kube-controller-manager's own controller of claims; where there is none, it is off.
    ///
    /// # Errors
    /// When it cannot be started anew.
    pub async fn switch_claim_controller(&self, claims: ClaimController) -> Result<()> {
        self.backend().switch_claim_controller(claims).await
    }
}
