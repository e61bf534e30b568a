//! A tenant: a user with permissions in the scenario's namespace only.

use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::providers::Capability;
use crate::wait::{SOON, eventually};

const NAME: &str = "tenant";

/// A tenant's permissions in its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantPermissions {
    /// Pods and workflows, as in the ClusterRole `edit` of a cluster with Argo. The rules of that role
    /// are aggregated by a controller that does not run everywhere.
    Edit,
    /// Everything, as in a Role of wildcards.
    Everything,
}

impl TenantPermissions {
    fn rule(self) -> Value {
        match self {
            Self::Edit => json!({
                "apiGroups": ["", "argoproj.io"], "resources": ["pods", "workflows", "workflows/status"],
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            }),
            Self::Everything => json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }),
        }
    }
}

impl Cluster {
    /// A client with these permissions and no others. Where authorization is off, it has all
    /// permissions.
    pub async fn tenant(&self, permissions: TenantPermissions) -> Result<Client> {
        if !self.can(Capability::Rbac) {
            return Ok(self.client().clone());
        }
        let roles: Api<Role> = Api::namespaced(self.client().clone(), self.namespace());
        let bindings: Api<RoleBinding> = Api::namespaced(self.client().clone(), self.namespace());
        let role = json!({ "metadata": { "name": NAME }, "rules": [permissions.rule()] });
        let binding = json!({
            "metadata": { "name": NAME },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NAME }],
        });
        let params = PostParams::default();
        roles
            .create(&params, &serde_json::from_value(role)?)
            .await?;
        bindings
            .create(&params, &serde_json::from_value(binding)?)
            .await?;
        let known = Kubeconfig::read_from(self.backend().admin_kubeconfig())?;
        let mut config =
            Config::from_custom_kubeconfig(known, &KubeConfigOptions::default()).await?;
        config.auth_info.impersonate = Some(NAME.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:authenticated".to_owned()]);
        let client = Client::try_from(config)?;
        self.may_create_pods(&client).await?;
        Ok(client)
    }

    /// A server applies permissions some time after they were created.
    async fn may_create_pods(&self, tenant: &Client) -> Result<()> {
        let query: SelfSubjectAccessReview = serde_json::from_value(json!({
            "spec": { "resourceAttributes": {
                "namespace": self.namespace(), "verb": "create", "resource": "pods",
            } },
        }))?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(tenant.clone());
        eventually("the tenant has its permissions", SOON, async || {
            let answer = reviews.create(&PostParams::default(), &query).await?;
            ensure!(
                answer.status.is_some_and(|status| status.allowed),
                "not allowed yet"
            );
            Ok(())
        })
        .await
    }
}
