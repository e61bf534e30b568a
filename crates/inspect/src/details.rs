//! API types with only the fields that are read.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// `metadata` of any object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
}

/// An object, with [`IgnoredAny`] in place of a part that is not read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Object<Spec = IgnoredAny, Status = IgnoredAny> {
    pub(crate) metadata: Meta,
    pub(crate) spec: Spec,
    pub(crate) status: Status,
}

/// A status condition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    /// `Available`, `Ready`, `NamespaceContentRemaining`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// CamelCase.
    pub reason: String,
    /// Message for people.
    pub message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamespaceSpec {
    pub(crate) finalizers: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Conditions {
    pub(crate) conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiServiceSpec {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) service: Option<ServiceRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WebhookConfiguration {
    pub(crate) metadata: Meta,
    pub(crate) webhooks: Option<Vec<Webhook>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Webhook {
    pub(crate) name: String,
    pub(crate) failure_policy: Option<String>,
    pub(crate) match_policy: Option<String>,
    pub(crate) client_config: ClientConfig,
    pub(crate) rules: Option<Vec<Rule>>,
    /// Any of these can exclude objects; they are not evaluated.
    pub(crate) namespace_selector: Option<serde_json::Value>,
    pub(crate) object_selector: Option<serde_json::Value>,
    pub(crate) match_conditions: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClientConfig {
    pub(crate) service: Option<ServiceRef>,
}

/// What a webhook intercepts; `*` is any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    pub(crate) api_groups: Vec<String>,
    pub(crate) api_versions: Vec<String>,
    /// Plurals, with a subresource after `/`.
    pub(crate) resources: Vec<String>,
    pub(crate) operations: Vec<String>,
    /// `Cluster`, `Namespaced` or `*`, the default.
    pub(crate) scope: Option<String>,
}

/// The spec of a Service.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceSpec {
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointSlice {
    pub(crate) endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoint {
    pub(crate) conditions: EndpointConditions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointConditions {
    pub(crate) ready: Option<bool>,
}

/// A Deployment, StatefulSet or DaemonSet. By default nothing but the images of its containers is read: there are
/// thousands, and their environment may contain secrets.
pub(crate) type WorkloadObject<C = Image> = Object<WorkloadSpec<C>, WorkloadStatus>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "C: Default + Deserialize<'de>")]
pub(crate) struct WorkloadSpec<C> {
    pub(crate) replicas: Option<i64>,
    pub(crate) template: Object<TemplateSpec<C>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "C: Default + Deserialize<'de>")]
pub(crate) struct TemplateSpec<C> {
    pub(crate) containers: Vec<C>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Image {
    pub(crate) image: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub(crate) image: String,
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<Env>,
    pub(crate) env_from: Vec<EnvFrom>,
}

impl Container {
    /// Its command and its arguments.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.command.iter().chain(&self.args).map(String::as_str)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Env {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) value_from: Option<ValueFrom>,
}

/// Where the value of a variable comes from; another source than a ConfigMap is not read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ValueFrom {
    pub(crate) config_map_key_ref: Option<ConfigMapRef>,
}

/// Variables that a ConfigMap, or a Secret, contains.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EnvFrom {
    pub(crate) prefix: String,
    pub(crate) config_map_ref: Option<ConfigMapRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigMapRef {
    pub(crate) name: String,
    pub(crate) key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadStatus {
    pub(crate) ready_replicas: Option<i64>,
    pub(crate) number_ready: Option<i64>,
    pub(crate) desired_number_scheduled: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    pub(crate) holder_identity: Option<String>,
    pub(crate) lease_duration_seconds: Option<i64>,
    pub(crate) renew_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    pub(crate) claim_ref: Option<BoundPvc>,
    pub(crate) csi: CsiSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CsiSource {
    pub(crate) driver: String,
}

/// The spec of a VolumeSnapshotContent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotContentSpec {
    pub(crate) driver: String,
}

/// The PVC that a volume is bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct BoundPvc {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl BoundPvc {
    /// `shop/data`.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the PVC of its name with this UID is the bound one.
    pub(crate) fn is(&self, uid: &str) -> bool {
        self.uid.is_empty() || self.uid == uid
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AttachmentSpec {
    pub(crate) attacher: String,
    pub(crate) node_name: String,
    pub(crate) source: AttachmentSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AttachmentSource {
    pub(crate) persistent_volume_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AttachmentStatus {
    pub(crate) attached: bool,
    pub(crate) detach_error: Option<AttachError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AttachError {
    pub(crate) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) volumes: Option<Vec<Volume>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<ClaimSource>,
    pub(crate) ephemeral: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSource {
    pub(crate) claim_name: String,
}

/// The status of a pod or a volume.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Phase {
    pub(crate) phase: String,
    pub(crate) message: String,
}
