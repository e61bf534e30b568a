//! Adds a finalizer to the pods of workflows until their workflow is being deleted or removed, with
//! `Controller`, the `finalizer` helper and one live read of the owner.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};

/// The hold (finalizer) of Belayer's benchmark.
const HOLD: &str = "belayer.dev/pod-status";

/// How soon a pod whose owner exists is checked again.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum Waits {
    #[error("its owner lives")]
    OwnerLives,
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

struct Context {
    client: Client,
    workflow: ApiResource,
}

pub(crate) async fn run(client: Client) -> anyhow::Result<()> {
    let workflow = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Workflow");
    let context = Context {
        workflow: ApiResource::from_gvk(&workflow),
        client: client.clone(),
    };
    let config = watcher::Config::default().streaming_lists();
    Controller::new(Api::<Pod>::all(client), config)
        .run(
            reconcile,
            |_, _, _| Action::requeue(AGAIN),
            Arc::new(context),
        )
        .for_each(|_| async {})
        .await;
    bail!("the controller ended")
}

async fn reconcile(
    pod: Arc<Pod>,
    context: Arc<Context>,
) -> Result<Action, finalizer::Error<Waits>> {
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    finalizer(&pods, HOLD, pod, |event| async {
        match event {
            Event::Apply(_) => Ok(Action::await_change()),
            Event::Cleanup(pod) if owner_lives(&pod, &context).await? => Err(Waits::OwnerLives),
            Event::Cleanup(_) => Ok(Action::await_change()),
        }
    })
    .await
}

/// Whether the pod's workflow exists, by UID, and is not being deleted.
async fn owner_lives(pod: &Pod, context: &Context) -> Result<bool, kube::Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let Some(owner) = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
    else {
        return Ok(false);
    };
    let workflows: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &context.workflow);
    let found = workflows.get_metadata_opt(&owner.name).await?;
    Ok(found.is_some_and(|found| {
        found.uid().as_deref() == Some(&*owner.uid) && found.metadata.deletion_timestamp.is_none()
    }))
}
