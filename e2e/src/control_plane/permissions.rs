//! A kubeconfig with exactly the permissions of one ServiceAccount.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

use super::kubeconfig::Kubeconfig;

/// Longer than any run of the scenarios. The API server may shorten it.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// Writes `path`: the server of `admin`, with a token of the ServiceAccount `namespace`/`name`.
///
/// A program with this kubeconfig has exactly the permissions of the account's roles, so that a scenario
/// finds missing permissions.
pub async fn service_account_kubeconfig(
    client: &Client,
    admin: &Kubeconfig,
    namespace: &str,
    name: &str,
    path: &Path,
) -> Result<()> {
    bound_kubeconfig(client, admin, (namespace, name), None, path).await
}

/// The same for a node's agent. The node must exist: the token is bound to it, as that of a pod on the
/// node.
pub async fn node_agent_kubeconfig(
    client: &Client,
    admin: &Kubeconfig,
    node: &str,
    path: &Path,
) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get(node).await.context("the agent's node")?;
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(node.into()),
        uid: found.metadata.uid,
    };
    let account = ("belayer-node-agent", "belayer-node-agent");
    bound_kubeconfig(client, admin, account, Some(bound), path).await
}

async fn bound_kubeconfig(
    client: &Client,
    admin: &Kubeconfig,
    (namespace, name): (&str, &str),
    bound: Option<BoundObjectReference>,
    path: &Path,
) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: bound,
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("ask for a token of the ServiceAccount {namespace}/{name}"))?;
    let token = answer.status.and_then(|status| status.token);
    let token = token.context("the server returned no token")?;
    Kubeconfig {
        token: Some(token),
        ..admin.clone()
    }
    .write(path)
}
