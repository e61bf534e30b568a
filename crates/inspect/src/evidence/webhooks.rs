//! Webhooks with `failurePolicy: Fail` and no ready endpoint.

use belayer_core::http::{JSON, Request};
use belayer_core::object::{ObjectKey, Resource};

use super::state::{DeadWebhook, Webhooks};
use crate::details::{EndpointSlice, Object, ServiceRef, ServiceSpec, WebhookConfiguration};
use crate::reader::{Page, Reader};
use crate::report::Unseen;

pub(super) async fn webhooks(reader: &Reader) -> Webhooks {
    let mut webhooks = Webhooks::default();
    for resource in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
        let configurations: Vec<WebhookConfiguration> = match reader.all(&path).await {
            Ok(found) => found,
            Err(error) => {
                let resource = format!("{resource}.admissionregistration.k8s.io");
                webhooks.unseen.push(Unseen::new(resource, &error));
                continue;
            }
        };
        for candidate in configurations
            .into_iter()
            .flat_map(|configuration| candidates(resource, configuration))
        {
            match has_no_endpoint(reader, &candidate.service).await {
                Ok(true) => webhooks.dead.push(candidate),
                Ok(false) => {}
                Err(unseen) if webhooks.unseen.contains(&unseen) => {}
                Err(unseen) => webhooks.unseen.push(unseen),
            }
        }
    }
    webhooks
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
                rules: webhook.rules.unwrap_or_default(),
                exact: webhook.match_policy.as_deref() == Some("Exact"),
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

/// Whether the service has no ready endpoint.
///
/// # Errors
///
/// What could not be read.
async fn has_no_endpoint(
    reader: &Reader,
    (namespace, service): &(String, String),
) -> Result<bool, Unseen> {
    let slices = Resource::new("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
    let request = Request::get(slices.path(Some(namespace)))
        .query(
            "labelSelector",
            format!("kubernetes.io/service-name={service}"),
        )
        .accept(JSON);
    let page: Page<EndpointSlice> = reader.json(&request).await.map_err(|error| {
        let what = format!("{slices} of service {namespace}/{service}");
        Unseen::new(what, &error)
    })?;
    let has_endpoint = page
        .items
        .into_iter()
        .flatten()
        .flat_map(|slice| slice.endpoints.unwrap_or_default())
        .any(|endpoint| endpoint.conditions.ready != Some(false));
    if has_endpoint {
        return Ok(false);
    }
    // The API server calls the external name of such a service, which has no EndpointSlices.
    let services = Resource::new("", "v1", "Service", "services");
    let key = ObjectKey::new(namespace.as_str(), service.as_str());
    let request = Request::get(services.object_path(&key));
    match reader.json::<Object<ServiceSpec>>(&request).await {
        Ok(found) => Ok(found.spec.kind != "ExternalName"),
        Err(error) if error.is_gone(&services, &key) => Ok(true),
        Err(error) => Err(Unseen::new(format!("{services} of {key}"), &error)),
    }
}
