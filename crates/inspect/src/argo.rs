//! The workflow controllers of Argo Workflows in the cluster: which workflows each processes, and whether it holds pods
//! by a finalizer of its own (A22).
//!
//! ```no_run
//! use belayer_inspect::{Reader, argo};
//!
//! # async fn print(reader: &Reader) {
//! // Every Deployment that runs Argo's workflow controller, with its settings.
//! let controllers = argo::controllers(reader).await;
//! println!("{controllers:?}");
//! # }
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use belayer_core::object::{ObjectKey, Resource};

use crate::details::{ConfigMapRef, Container, WorkloadObject};
use crate::reader::{ReadResult, Reader, explain};

/// The finalizer by which a workflow controller itself holds its pods.
pub const STATUS_FINALIZER: &str = "workflows.argoproj.io/status";

/// The finalizers that a workflow controller removes from its pods and workflows.
pub(crate) const FINALIZERS: [&str; 2] = [STATUS_FINALIZER, "workflows.argoproj.io/artifact-gc"];

/// The environment variable of a workflow controller that switches its own finalizer on.
pub const OWN_FINALIZER: &str = "ARGO_POD_STATUS_CAPTURE_FINALIZER";

/// Label on workflows and pods: the ID of the workflow controller that processes them; without it the one without an ID.
pub const INSTANCE_LABEL: &str = "workflows.argoproj.io/controller-instanceid";

/// The program of the workflow controller. Vendors build images of it under other names, and mirrors rename them.
const PROGRAM: &str = "workflow-controller";

/// Parts of the images of the workflow controller: Argo's own, and those of Red Hat and Chainguard.
const IMAGES: [&str; 2] = [PROGRAM, "workflowcontroller"];

/// Its Lease, with its instance ID at the end.
const LEASE: &str = "workflow-controller";

/// Its ConfigMap, unless `--configmap` names another one.
const CONFIG_MAP: &str = "workflow-controller-configmap";

/// A Deployment of the workflow controller. Returned by [`controllers`],
/// as in the [example](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowController {
    /// `NAMESPACE/NAME`.
    pub place: String,
    /// How many of its pods are ready.
    pub ready: i64,
    /// Its instance ID, empty if it has none; `None` if its ConfigMap could not be read.
    pub instance: Option<String>,
    /// The only namespace whose workflows it processes; `None` for all.
    pub namespace: Option<String>,
    /// Whether it holds its pods by [`STATUS_FINALIZER`].
    pub own_finalizer: bool,
    /// Whether that is unknown: the variable comes from a Secret, or from a ConfigMap that could not be read.
    pub may_have_own_finalizer: bool,
}

impl WorkflowController {
    /// Whether it processes workflows with this instance ID in this namespace. What is unknown may be.
    pub fn may_process(&self, instance: &str, namespace: &str) -> bool {
        self.instance.as_deref().is_none_or(|own| own == instance)
            && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// `NAMESPACE/NAME` of its Lease; `None` if its instance ID is unknown.
    pub(crate) fn lease(&self) -> Option<String> {
        let (namespace, _) = self.place.split_once('/')?;
        Some(match self.instance.as_deref()? {
            "" => format!("{namespace}/{LEASE}"),
            id => format!("{namespace}/{LEASE}-{id}"),
        })
    }
}

/// Why no workflow with this instance ID in this namespace is processed; `None` if one of the
/// controllers may do it. The controllers are those of the [module's example](self).
pub fn why_not_processed(
    controllers: &[WorkflowController],
    instance: &str,
    namespace: &str,
) -> Option<String> {
    let own = || {
        controllers
            .iter()
            .filter(|one| one.may_process(instance, namespace))
    };
    if own().any(|one| one.ready > 0) {
        return None;
    }
    let whose = match instance {
        "" => format!("workflows without an instance ID in namespace {namespace}"),
        id => format!("workflows with instance ID {id} in namespace {namespace}"),
    };
    let down: Vec<&str> = own().map(|one| one.place.as_str()).collect();
    Some(if down.is_empty() {
        format!("no Deployment was recognized as the workflow controller for {whose}")
    } else {
        format!(
            "the workflow controller for {whose} has no ready pod: deployment {}",
            down.join(", ")
        )
    })
}

/// Reads all Deployments that run the workflow controller, and their ConfigMaps. The [module's
/// example](self) prints them.
pub async fn controllers(reader: &Reader) -> ReadResult<Vec<WorkflowController>> {
    let deployments = match reader
        .all::<WorkloadObject<Container>>("/apis/apps/v1/deployments")
        .await
    {
        Ok(deployments) => deployments,
        Err(error) => return ReadResult::Unknown(format!("deployments: {}", explain(&error))),
    };
    let mut found = Vec::new();
    for deployment in deployments {
        let containers = &deployment.spec.template.spec.containers;
        let Some(container) = containers.iter().find(|one| one.is_controller()) else {
            continue;
        };
        let namespace = &deployment.metadata.namespace;
        let instance = match container.flag("configmap") {
            Ok(map) => config_map(reader, namespace, map.unwrap_or(CONFIG_MAP))
                .await
                .and_then(|map| map.instance()),
            Err(NotShown) => None,
        };
        let one = match (
            container.has("namespaced"),
            container.flag("managed-namespace"),
        ) {
            (Ok(true), Ok(managed)) => Some(managed.unwrap_or(namespace).to_owned()),
            _ => None,
        };
        let own_finalizer = own_finalizer(reader, namespace, container).await;
        found.push(WorkflowController {
            place: format!("{namespace}/{}", deployment.metadata.name),
            ready: deployment.status.ready_replicas.unwrap_or_default(),
            instance,
            namespace: one,
            own_finalizer: own_finalizer == Some(true),
            may_have_own_finalizer: own_finalizer.is_none(),
        });
    }
    ReadResult::Found(found)
}

/// Whether the variable [`OWN_FINALIZER`] is `true` in this container; `None` if its value could not be read.
async fn own_finalizer(reader: &Reader, namespace: &str, container: &Container) -> Option<bool> {
    let value = async |map: &ConfigMapRef, variable: &str| {
        let map = config_map(reader, namespace, &map.name).await?;
        Some(map.data.get(variable).cloned())
    };
    // The last one counts, and `env` before `envFrom`.
    if let Some(one) = container.env.iter().rfind(|one| one.name == OWN_FINALIZER) {
        let Some(from) = &one.value_from else {
            return Some(one.value == "true");
        };
        let map = from.config_map_key_ref.as_ref()?;
        let value = value(map, &map.key).await?;
        return Some(value.as_deref() == Some("true"));
    }
    for from in container.env_from.iter().rev() {
        let variable = OWN_FINALIZER.strip_prefix(&*from.prefix);
        let (Some(map), Some(variable)) = (&from.config_map_ref, variable) else {
            continue;
        };
        if let Some(value) = value(map, variable).await? {
            return Some(value == "true");
        }
    }
    Some(false)
}

/// The ConfigMap of this name, without data if there is none; `None` if it could not be read.
async fn config_map(reader: &Reader, namespace: &str, name: &str) -> Option<ConfigMap> {
    let key = ObjectKey::new(namespace, name);
    match reader.object(&Resource::config_maps(), &key).await {
        ReadResult::Found(map) => Some(map),
        ReadResult::Absent => Some(ConfigMap::default()),
        ReadResult::Unknown(_) => None,
    }
}

/// The Deployment does not show a value, as its container reads it from another object.
#[derive(Debug, PartialEq, Eq)]
struct NotShown;

impl Container {
    /// Whether it runs the workflow controller, by its program or its image. Without a command the image names the program.
    fn is_controller(&self) -> bool {
        let mut programs = self.command.iter().chain(self.args.first());
        programs.any(|word| word.rsplit('/').next() == Some(PROGRAM))
            || IMAGES.iter().any(|part| self.image.contains(part))
    }

    /// Whether a flag that needs no value is set.
    fn has(&self, name: &str) -> Result<bool, NotShown> {
        let flag = format!("--{name}");
        if self.words().any(|word| word == flag) {
            return Ok(true);
        }
        let value = self.flag(name)?;
        Ok(value.is_some_and(|value| ["1", "t", "true"].contains(&&*value.to_lowercase())))
    }

    /// The value of a flag, given as `--name value` or `--name=value`, or else by Argo's environment variable for it.
    fn flag(&self, name: &str) -> Result<Option<&str>, NotShown> {
        let flag = format!("--{name}");
        let mut words = self.words();
        while let Some(word) = words.next() {
            if word == flag {
                return Ok(words.next());
            }
            if let Some(value) = word
                .strip_prefix(&flag)
                .and_then(|rest| rest.strip_prefix('='))
            {
                return Ok(Some(value));
            }
        }
        let variable = format!("ARGO_{}", name.replace('-', "_").to_uppercase());
        match self.env.iter().find(|one| one.name == variable) {
            Some(one) if one.value_from.is_some() => Err(NotShown),
            // Argo ignores an empty one.
            found => Ok(found
                .map(|one| one.value.as_str())
                .filter(|value| !value.is_empty())),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigMap {
    data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// The instance ID, by a separate key, whose value is YAML, or in the document `config`; `None` if that cannot be read.
    fn instance(&self) -> Option<String> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Config {
            #[serde(rename = "instanceID")]
            instance: Option<String>,
        }
        let text = match (self.data.get("instanceID"), self.data.get("config")) {
            (Some(own), _) => format!("instanceID: {}", own.trim()),
            (None, Some(config)) => config.clone(),
            (None, None) => return Some(String::new()),
        };
        let config: Config = serde_saphyr::from_str(&text).ok()?;
        Some(config.instance.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn controller(
        ready: i64,
        instance: Option<&str>,
        namespace: Option<&str>,
    ) -> WorkflowController {
        WorkflowController {
            place: "argo/workflow-controller".into(),
            ready,
            instance: instance.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            own_finalizer: false,
            may_have_own_finalizer: false,
        }
    }

    #[rstest]
    #[case::all_namespaces(controller(1, Some(""), None), "", None)]
    #[case::its_own(controller(1, Some("a"), Some("ci")), "a", None)]
    #[case::an_unknown_id_may_be_the_one(controller(1, None, None), "a", None)]
    #[case::another_id(
        controller(1, Some("b"), None),
        "a",
        Some("no Deployment was recognized")
    )]
    #[case::another_namespace(
        controller(1, Some(""), Some("prod")),
        "",
        Some("no Deployment was recognized")
    )]
    #[case::not_ready(controller(0, Some(""), None), "", Some("argo/workflow-controller"))]
    fn a22_which_workflows_are_processed(
        #[case] only: WorkflowController,
        #[case] instance: &str,
        #[case] why: Option<&str>,
    ) {
        let found = why_not_processed(&[only], instance, "ci");
        assert_eq!(found.is_some(), why.is_some(), "{found:?}");
        assert!(found.is_none_or(|text| text.contains(why.unwrap_or_default())));
    }

    #[rstest]
    #[case::none(&[], Some(""))]
    #[case::as_a_key(&[("instanceID", "a")], Some("a"))]
    #[case::in_quotes(&[("instanceID", "\"a\"\n")], Some("a"))]
    #[case::with_a_comment(&[("instanceID", "'a' # of team a")], Some("a"))]
    #[case::a_number(&[("instanceID", "7")], Some("7"))]
    #[case::an_empty_key(&[("instanceID", "")], Some(""))]
    #[case::in_the_document(&[("config", "instanceID: a\nparallelism: 10\n")], Some("a"))]
    #[case::a_document_without_it(&[("config", "parallelism: 10\n")], Some(""))]
    #[case::an_unreadable_document(&[("config", "[")], None)]
    fn a22_the_instance_id(#[case] data: &[(&str, &str)], #[case] expected: Option<&str>) {
        let data = data
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        let map = ConfigMap {
            data: data.collect(),
        };
        assert_eq!(map.instance().as_deref(), expected);
    }

    #[rstest]
    #[case::of_argo(json!({"image": "quay.io/argoproj/workflow-controller:v4.1.2"}), true)]
    #[case::of_red_hat(
        json!({"image": "registry.redhat.io/rhoai/odh-data-science-pipelines-argo-workflowcontroller-rhel9@sha256:0"}),
        true
    )]
    #[case::of_chainguard(json!({"image": "cgr.dev/chainguard/argo-workflowcontroller-fips"}), true)]
    #[case::of_a_mirror(json!({"image": "mirror/a:1", "command": ["workflow-controller"], "args": ["--namespaced"]}), true)]
    #[case::behind_another_program(
        json!({"image": "mirror/a:1", "command": ["/tini", "--", "/bin/workflow-controller"]}),
        true
    )]
    #[case::by_the_entry_point_of_a_mirror(json!({"image": "mirror/a:1", "args": ["workflow-controller"]}), true)]
    #[case::argos_server(
        json!({"image": "mirror/a:1", "args": ["server", "--configmap", "workflow-controller"]}),
        false
    )]
    fn a22_a_workflow_controller_is_recognized(
        #[case] container: serde_json::Value,
        #[case] expected: bool,
    ) {
        let container: Container = serde_json::from_value(container).unwrap();
        assert_eq!(container.is_controller(), expected);
    }

    #[test]
    fn flags_are_read_in_both_forms() {
        let container = Container {
            command: vec!["workflow-controller".into()],
            args: [
                "--namespaced",
                "--managed-namespace",
                "ci",
                "--configmap=mine",
            ]
            .map(String::from)
            .into(),
            ..Container::default()
        };
        assert_eq!(container.has("namespaced"), Ok(true));
        assert_eq!(container.flag("managed-namespace"), Ok(Some("ci")));
        assert_eq!(container.flag("configmap"), Ok(Some("mine")));
        assert_eq!(container.flag("loglevel"), Ok(None));
    }

    /// Argo reads each flag that is not given from the environment.
    #[test]
    fn flags_are_read_from_the_environment() {
        let env = json!([
            { "name": "ARGO_NAMESPACED", "value": "true" },
            { "name": "ARGO_MANAGED_NAMESPACE", "value": "ci" },
            { "name": "ARGO_CONFIGMAP", "valueFrom": { "configMapKeyRef": { "name": "a", "key": "b" } } },
            { "name": "ARGO_LOGLEVEL", "value": "" },
        ]);
        let by_env: Container = serde_json::from_value(json!({ "env": env })).unwrap();
        assert_eq!(by_env.has("namespaced"), Ok(true));
        assert_eq!(by_env.flag("managed-namespace"), Ok(Some("ci")));
        assert_eq!(by_env.flag("configmap"), Err(NotShown));
        assert_eq!(by_env.flag("loglevel"), Ok(None));
        let args = ["--namespaced=false", "--managed-namespace=prod"];
        let given = json!({ "env": env, "args": args });
        let given: Container = serde_json::from_value(given).unwrap();
        assert_eq!(given.has("namespaced"), Ok(false));
        assert_eq!(given.flag("managed-namespace"), Ok(Some("prod")));
    }
}
