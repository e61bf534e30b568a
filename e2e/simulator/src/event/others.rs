//! What Argo, Kubernetes and other programs do with objects that Belayer holds.

use belayer_holds::names::KUBERNETES_PVC_PROTECTION as PROTECTION;
use belayer_sandbox::Gvr;
use belayer_workload::{ARGO, USER, WORKFLOWS, names};
use serde_json::{Value, json};

use super::Stage;
use crate::objects::JOBS;

/// The controller manager of Kubernetes, with its protection of PVCs.
pub(crate) const KUBERNETES: &str = "kube-controller-manager";

/// The finalizer of a user's program on workflows and Jobs.
pub(super) const KEPT: &str = "example.com/kept";

impl Stage {
    /// Adds a finalizer. The API server refuses that for an object that is being deleted.
    pub(super) fn add_finalizer(&self, actor: &str, gvr: &Gvr, object: &Value, finalizer: &str) {
        let mut all = finalizers(object);
        if !all.contains(&finalizer) {
            all.push(finalizer);
            self.patch(actor, gvr, object, json!({"metadata": {"finalizers": all}}));
        }
    }

    /// Removes these finalizers.
    pub(super) fn remove_finalizers(&self, actor: &str, gvr: &Gvr, object: &Value, gone: &[&str]) {
        let all = finalizers(object);
        let kept: Vec<&&str> = all.iter().filter(|name| !gone.contains(name)).collect();
        if kept.len() < all.len() {
            self.patch(
                actor,
                gvr,
                object,
                json!({"metadata": {"finalizers": kept}}),
            );
        }
    }

    /// Argo archives completed workflows, and Kubernetes releases deleted PVCs that no pod uses.
    pub(crate) fn let_others_finish(&self) {
        for workflow in self.list(&WORKFLOWS, None) {
            if workflow["metadata"]["labels"][names::ARCHIVING] == "Pending" {
                let body = json!({"metadata": {"labels": {names::ARCHIVING: "Archived"}}});
                self.patch(ARGO, &WORKFLOWS, &workflow, body);
            }
        }
        for pvc in self.list(&Gvr::PERSISTENTVOLUMECLAIMS, None) {
            if !pvc["metadata"]["deletionTimestamp"].is_null() && !self.is_used(&pvc) {
                self.remove_finalizers(
                    KUBERNETES,
                    &Gvr::PERSISTENTVOLUMECLAIMS,
                    &pvc,
                    &[PROTECTION],
                );
            }
        }
    }

    fn is_used(&self, pvc: &Value) -> bool {
        let metadata = &pvc["metadata"];
        let pods = self.list(&Gvr::PODS, metadata["namespace"].as_str());
        let volumes = pods
            .iter()
            .flat_map(|pod| pod["spec"]["volumes"].as_array())
            .flatten();
        let mut names = volumes.map(|volume| &volume["persistentVolumeClaim"]["claimName"]);
        names.any(|name| *name == metadata["name"])
    }

    /// The program that keeps workflows and Jobs removes its finalizer.
    pub(crate) fn remove_kept(&self) {
        for gvr in [WORKFLOWS, JOBS] {
            for owner in self.list(&gvr, None) {
                self.remove_finalizers(USER, &gvr, &owner, &[KEPT]);
            }
        }
    }
}

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}
