//! The Belayer that runs in the cluster: `--unselected` has to decide by its configuration.

use std::time::Duration;

use serde_json::Value;

use belayer_core::http::Request;
use belayer_inspect::reader::Reader;

use crate::exit::Failure;

/// Time limit: without an answer the drain goes on.
const WITHIN: Duration = Duration::from_secs(5);

/// Refuses to use the defaults if a Deployment in Belayer's `namespace` runs with a configuration file. The defaults may not
/// select what that Belayer holds.
pub(super) async fn must_have_no_file(reader: &Reader, namespace: &str) -> Result<(), Failure> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let request = Request::get(path)
        .query("labelSelector", "app.kubernetes.io/name=belayer")
        .timeout(WITHIN);
    let list: Value = reader.json(&request).await.unwrap_or_default();
    let mut deployments = list["items"].as_array().into_iter().flatten();
    let Some(configured) = deployments.find(|deployment| has_file(deployment)) else {
        return Ok(());
    };
    let name = configured["metadata"]["name"].as_str().unwrap_or_default();
    Err(Failure::configuration(anyhow::anyhow!(
        "the Deployment {namespace}/{name} runs with a configuration file; give the same file with --config FILE"
    )))
}

fn has_file(deployment: &Value) -> bool {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let mut containers = containers.into_iter().flatten();
    containers.any(|container| {
        let lists = ["command", "args"].map(|list| container[list].as_array());
        let mut words = lists.into_iter().flatten().flatten();
        let variables = container["env"].as_array();
        words.any(|word| {
            let word = word.as_str().unwrap_or_default();
            word == "--config" || word.starts_with("--config=")
        }) || variables.is_some_and(|all| all.iter().any(|one| one["name"] == "BELAYER_CONFIG"))
    })
}
