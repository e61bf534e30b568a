//! A kubeconfig that has exactly the rights of one ServiceAccount.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use super::kubeconfig::Kubeconfig;

/// Longer than any run of the scenarios. The API server may shorten it.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// Writes `path`: the server of `admin`, spoken to as the ServiceAccount `namespace`/`name`.
///
/// What runs with it can do what the account's roles allow and nothing else, so that a missing
/// permission shows in a scenario and not in somebody's cluster.
///
/// # Errors
/// When the account does not exist or the server gives no token.
pub async fn service_account_kubeconfig(
    client: &Client,
    admin: &Kubeconfig,
    namespace: &str,
    name: &str,
    path: &Path,
) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("ask for a token of the ServiceAccount {namespace}/{name}"))?;
    let token = answer.status.and_then(|status| status.token);
    let token = token.context("the server gave no token")?;
    Kubeconfig {
        token: Some(token),
        ..admin.clone()
    }
    .write(path)
}
