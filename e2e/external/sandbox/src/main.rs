//! A test on `belayer-sandbox`: a client that repeats a patch after a conflict.

use std::time::Duration;

use anyhow::ensure;
use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};

async fn label(client: kube::Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let patch = Patch::Merge(serde_json::json!({"metadata": {"labels": {"a": "b"}}}));
    while maps
        .patch("settings", &PatchParams::default(), &patch)
        .await
        .is_err()
    {}
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sandbox = Sandbox::builder().seed(7).build();
    sandbox.load_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}")?;
    let patches = Match::verb(Verb::Patch).kind("ConfigMap");
    let fault = sandbox
        .faults()
        .inject(Fault::on(patches).nth(1).answer(Answer::conflict()));
    label(sandbox.client()).await;
    let labelled = |map: Option<&ConfigMap>| map.is_some_and(|map| map.metadata.labels.is_some());
    sandbox
        .wait_until_typed("default", "settings", Duration::from_secs(5), labelled)
        .await?;
    ensure!(fault.hits() == 1, "{} conflicts", fault.hits());
    println!("sandbox: labelled after one conflict");
    Ok(())
}
