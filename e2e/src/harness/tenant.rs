//! A tenant: somebody who may edit the scenario's namespace, and nothing else.

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DynamicObject, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::kinds;
use crate::providers::Capability;

const NAME: &str = "tenant";

impl Cluster {
    /// A client with the rights of a tenant: the ClusterRole `edit` in the scenario's namespace, and
    /// workflows, which that role of a cluster without Argo does not know. Where no rights are
    /// checked, it may do everything.
    ///
    /// # Errors
    /// When the server refuses the account, its rights or its token.
    pub async fn tenant(&self) -> Result<Client> {
        if !self.can(Capability::Rbac) {
            return Ok(self.client().clone());
        }
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": NAME } });
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.client().clone(), self.namespace());
        accounts
            .create(&PostParams::default(), &serde_json::from_value(account)?)
            .await
            .context("create the tenant's account")?;
        self.grant("roles", json!({
            "kind": "Role",
            "rules": [
                { "apiGroups": ["argoproj.io"], "resources": ["workflows", "workflows/status"], "verbs": ["*"] },
                // As in `edit`, whose rules come from a controller that may not run here.
                { "apiGroups": [""], "resources": ["pods"], "verbs": [
                    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
                ] },
            ],
        }))
        .await?;
        for (name, role) in [("edit", "ClusterRole"), (NAME, "Role")] {
            self.grant("rolebindings", json!({
                "kind": "RoleBinding", "metadata": { "name": name },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name },
                "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": self.namespace() }],
            }))
            .await?;
        }
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(NAME, &PostParams::default(), &request)
            .await
            .context("ask for the tenant's token")?;
        let token = answer.status.and_then(|status| status.token);
        let token = token.context("the server gave no token")?;
        let mut known = Kubeconfig::read_from(self.backend().admin_kubeconfig())?;
        let user = known.auth_infos.first_mut().context("no user")?;
        user.auth_info = Some(AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        });
        let config = Config::from_custom_kubeconfig(known, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    async fn grant(&self, plural: &str, mut object: Value) -> Result<()> {
        object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = NAME.into();
        }
        let object: DynamicObject = serde_json::from_value(object)?;
        kinds::rights(self.client(), self.namespace(), plural)
            .create(&PostParams::default(), &object)
            .await
            .map(drop)
            .with_context(|| format!("create the tenant's {plural}"))
    }
}
