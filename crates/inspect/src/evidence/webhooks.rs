//! Webhooks with `failurePolicy: Fail` and no ready endpoint.

use belayer_core::http::{JSON, Request};
use belayer_core::object::Resource;

use super::state::DeadWebhook;
use crate::details::{EndpointSlice, ServiceRef, WebhookConfiguration};
use crate::reader::{ReadResult, Reader, explain};

pub(super) async fn dead_webhooks(reader: &Reader) -> ReadResult<Vec<DeadWebhook>> {
    let mut dead = Vec::new();
    for resource in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        let configurations: Vec<WebhookConfiguration> = match reader.all(&path).await {
            Ok(found) => found,
            Err(error) => return ReadResult::Unknown(explain(&error)),
        };
        for candidate in configurations
            .into_iter()
            .flat_map(|configuration| candidates(resource, configuration))
        {
            if has_no_endpoint(reader, &candidate.service).await {
                dead.push(candidate);
            }
        }
    }
    ReadResult::Found(dead)
}

/// Webhooks of a configuration with `failurePolicy: Fail` and a service in the cluster.
fn candidates(
    resource: &'static str,
    configuration: WebhookConfiguration,
) -> impl Iterator<Item = DeadWebhook> {
    let name = configuration.metadata.name;
    configuration
        .webhooks
        .unwrap_or_default()
        .into_iter()
        .filter_map(move |webhook| {
            let fails_closed = webhook.failure_policy.as_deref().unwrap_or("Fail") == "Fail";
            let ServiceRef {
                namespace,
                name: service,
            } = webhook.client_config.service.filter(|_| fails_closed)?;
            let selects = [
                &webhook.namespace_selector,
                &webhook.object_selector,
                &webhook.match_conditions,
            ]
            .iter()
            .any(|selector| !is_empty(selector.as_ref()));
            Some(DeadWebhook {
                resource,
                configuration: name.clone(),
                name: webhook.name,
                service: (namespace, service),
                rules: webhook
                    .rules
                    .unwrap_or_default()
                    .into_iter()
                    .map(|rule| (rule.api_groups, rule.resources, rule.operations))
                    .collect(),
                may_leave_out: selects,
            })
        })
}

fn is_empty(value: Option<&serde_json::Value>) -> bool {
    match value {
        None | Some(serde_json::Value::Null) => true,
        Some(serde_json::Value::Object(map)) => map.is_empty(),
        Some(serde_json::Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

/// Whether the service has no ready endpoint; `false` if the read fails, which proves nothing.
async fn has_no_endpoint(reader: &Reader, (namespace, service): &(String, String)) -> bool {
    #[derive(serde::Deserialize)]
    struct Slices {
        items: Option<Vec<EndpointSlice>>,
    }
    let slices = Resource::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
    let path = slices.path(Some(namespace));
    let request = Request::get(path)
        .query(
            "labelSelector",
            format!("kubernetes.io/service-name={service}"),
        )
        .accept(JSON);
    let Ok(slices) = reader.json::<Slices>(&request).await else {
        return false;
    };
    !slices
        .items
        .unwrap_or_default()
        .into_iter()
        .flat_map(|slice| slice.endpoints.unwrap_or_default())
        .any(|endpoint| endpoint.conditions.ready != Some(false))
}
