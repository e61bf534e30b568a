//! Runs a fixture: creates stuck objects, runs the binary, compares its output, cleans up.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::fixture::{File, FixtureStep};
use super::normal::normal;
use crate::harness::{Cluster, eventually};
use crate::kinds;
use crate::output::Output;
use crate::wait::SOON;

/// The binary, run as Belayer's own account so that the recorder sees its requests.
pub(crate) struct Tool {
    binary: PathBuf,
    kubeconfig: PathBuf,
    /// The permissions granted to its account for this, to be removed again.
    permissions: &'static str,
    client: Client,
}

impl Tool {
    /// With permission to read everything but these resources of the core group.
    pub(crate) async fn with_rights_but(cluster: &Cluster, hidden: &[&str]) -> Result<Self> {
        let permissions = "e2e-stuck-view";
        let tool = Self {
            binary: cluster.setting().belayer.clone(),
            kubeconfig: cluster.backend().belayer_kubeconfig().to_owned(),
            permissions,
            client: cluster.client().clone(),
        };
        let rules = if hidden.is_empty() {
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}])
        } else {
            all_but(cluster.client(), hidden).await?
        };
        tool.create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": permissions}, "rules": rules,
        }))
        .await?;
        tool.create(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": permissions},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": permissions},
            "subjects": [{"kind": "ServiceAccount", "name": "belayer", "namespace": "belayer-system"}],
        }))
        .await?;
        Ok(tool)
    }

    async fn create(&self, object: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object)?;
        api(&self.client, &object)?
            .create(&PostParams::default(), &object)
            .await
            .context("grant the read permissions")?;
        Ok(())
    }

    /// Runs it.
    pub(crate) async fn run(&self, args: &[String]) -> Result<Output> {
        let mut command = tokio::process::Command::new(&self.binary);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NO_COLOR", "1")
            .env_remove("BELAYER_CONFIG");
        Output::of(&mut command, SOON).await
    }

    /// Removes the permissions.
    pub(crate) async fn put_away(self) -> Result<()> {
        for kind in ["ClusterRoleBinding", "ClusterRole"] {
            let object = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": self.permissions},
            });
            let object: DynamicObject = serde_json::from_value(object)?;
            api(&self.client, &object)?
                .delete(self.permissions, &DeleteParams::default())
                .await
                .map(drop)
                .or_else(ignore_absent)?;
        }
        Ok(())
    }
}

/// RBAC cannot deny: every group is listed, and of the core group every resource but these.
async fn all_but(client: &Client, hidden: &[&str]) -> Result<Value> {
    let groups = client.list_api_groups().await?;
    let names: Vec<_> = groups
        .groups
        .iter()
        .map(|group| group.name.clone())
        .collect();
    let core = client.list_core_api_resources("v1").await?;
    let resources: Vec<_> = core
        .resources
        .iter()
        .map(|resource| resource.name.clone())
        .filter(|name| !hidden.contains(&name.as_str()))
        .collect();
    Ok(json!([
        {"apiGroups": names, "resources": ["*"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": resources, "verbs": ["get", "list"]},
    ]))
}

/// Runs it, and removes everything that it created in any case.
pub(crate) async fn play(cluster: &Cluster, file: &File) -> Result<()> {
    let mut made = Vec::new();
    no_namespace_leaves(cluster.client()).await?;
    let tool = Tool::with_rights_but(cluster, &[]).await?;
    forget_the_election(cluster.client()).await?;
    let played = steps_and_runs(cluster, file, &tool, &mut made).await;
    let put_away = tool.put_away().await;
    let cleaned = clean_up(cluster.client(), &made).await;
    played.and(put_away).and(cleaned)
}

/// Waits until the namespaces of earlier scenarios are removed: an API that does not answer keeps all namespaces.
async fn no_namespace_leaves(client: &Client) -> Result<()> {
    let namespaces = kinds::namespaces(client);
    eventually("no namespace is being deleted", SOON, async || {
        let all = namespaces.list(&ListParams::default()).await?;
        let mut all = all.iter();
        let leaving = all.find(|one| one.metadata.deletion_timestamp.is_some());
        ensure!(
            leaving.is_none(),
            "{}",
            leaving.map(|one| one.name_any()).unwrap_or_default()
        );
        Ok(())
    })
    .await
}

/// Removes the Lease of an earlier scenario, whose holder no longer runs: the output would mention it.
async fn forget_the_election(client: &Client) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "belayer-system");
    leases
        .delete("belayer", &DeleteParams::default())
        .await
        .map(drop)
        .or_else(ignore_absent)
}

async fn steps_and_runs(
    cluster: &Cluster,
    file: &File,
    tool: &Tool,
    made: &mut Vec<DynamicObject>,
) -> Result<()> {
    let namespace = cluster.namespace();
    let fixture = file.read(namespace)?;
    for (index, step) in fixture.steps.iter().enumerate() {
        take(cluster.client(), step, made)
            .await
            .with_context(|| format!("step {}", index + 1))?;
    }
    let mark = cluster.recorder()?.mark()?;
    // Controllers need time: the command is repeated until its output is the expected one.
    let expected = file.expected.trim();
    let bless = std::env::var_os("UPDATE_SNAPSHOTS").is_some();
    // A real garbage collector discovers a new kind only every half minute.
    let deadline = if bless { Duration::from_secs(5) } else { SOON };
    let asked = eventually("the expected text", deadline, async || {
        let seen = ask(tool, &fixture.runs, namespace).await?;
        ensure!(
            seen == expected,
            "the text differs:\n{}",
            difference(expected, &seen)
        );
        Ok(())
    })
    .await;
    if asked.is_err() && bless {
        let path = format!(
            "{}/fixtures/stuck/{}.txt",
            env!("CARGO_MANIFEST_DIR"),
            file.name.trim_start_matches("stuck-")
        );
        let seen = ask(tool, &fixture.runs, namespace).await?;
        std::fs::write(path, format!("{seen}\n"))?;
    }
    asked?;
    let writes = cluster.recorder()?.writes_since(mark)?;
    ensure!(writes.is_empty(), "it wrote: {writes:?}");
    Ok(())
}

async fn ask(tool: &Tool, runs: &[super::fixture::Run], namespace: &str) -> Result<String> {
    let mut text = Vec::new();
    for run in runs {
        let Output { code, out, err } = tool.run(&run.args).await?;
        let args = run.args.join(" ").replace(namespace, "$ns");
        ensure!(
            code == run.exit,
            "belayer {args}: exit code {code} instead of {}: {out}{err}",
            run.exit
        );
        text.push(format!(
            "$ belayer {args}\n{}{err}",
            normal(&out, namespace)
        ));
    }
    Ok(text.join("\n\n").trim().to_owned())
}

/// The first line that differs, and the whole text.
fn difference(expected: &str, seen: &str) -> String {
    let pairs = expected.lines().zip(seen.lines());
    let first = pairs
        .enumerate()
        .find(|(_, (a, b))| a != b)
        .map_or("one text is longer".to_owned(), |(line, (a, b))| {
            format!("line {}:\n  expected {a}\n  seen     {b}", line + 1)
        });
    format!("{first}\n--- seen:\n{seen}")
}

async fn take(client: &Client, step: &FixtureStep, made: &mut Vec<DynamicObject>) -> Result<()> {
    if let Some(object) = &step.create {
        let object: DynamicObject = read(object, made)?;
        let params = PostParams {
            field_manager: step.by.clone(),
            ..PostParams::default()
        };
        let name = object.name_any();
        let created = eventually(&format!("{name} can be created"), SOON, async || {
            match api(client, &object)?.create(&params, &object).await {
                // Left by an earlier run: the object exists already.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    Ok(api(client, &object)?.get(&name).await?)
                }
                other => Ok(other?),
            }
        })
        .await?;
        made.push(DynamicObject {
            types: object.types.clone(),
            ..created
        });
    }
    for (part, to_status) in [(&step.patch, false), (&step.status, true)] {
        let Some(part) = part else { continue };
        let part: DynamicObject = read(part, made)?;
        let (api, params) = (api(client, &part)?, PatchParams::default());
        let merge = Patch::Merge(&part);
        let name = part.name_any();
        if to_status {
            api.patch_status(&name, &params, &merge).await?;
        } else {
            api.patch(&name, &params, &merge).await?;
        }
    }
    if let Some(object) = &step.delete {
        let object: DynamicObject = read(object, made)?;
        let mut params = match step.propagation.as_deref() {
            Some("Foreground") => DeleteParams::foreground(),
            None | Some("Background") => DeleteParams::background(),
            Some(other) => bail!("invalid propagation {other}"),
        };
        params.grace_period_seconds = step.grace;
        api(client, &object)?
            .delete(&object.name_any(), &params)
            .await?;
    }
    Ok(())
}

/// Parses an object, with the UIDs of those created before substituted.
fn read(object: &Value, made: &[DynamicObject]) -> Result<DynamicObject> {
    let mut text = object.to_string();
    for known in made {
        let kind = known.types.as_ref().map_or("", |types| types.kind.as_str());
        let mark = format!("$uid({kind}/{})", known.name_any());
        text = text.replace(&mark, &known.uid().unwrap_or_default());
    }
    serde_json::from_str(&text).with_context(|| format!("invalid object: {text}"))
}

fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("the object has no kind")?;
    let gvk = GroupVersionKind::try_from(types)?;
    let resource = ApiResource::from_gvk(&gvk);
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Deletes the last first, finalizers included.
async fn clean_up(client: &Client, made: &[DynamicObject]) -> Result<()> {
    for object in made.iter().rev() {
        let api = api(client, object)?;
        let name = object.name_any();
        let now = DeleteParams::background().grace_period(0);
        api.delete(&name, &now)
            .await
            .map(drop)
            .or_else(ignore_absent)?;
    }
    for object in made.iter().rev() {
        let api = api(client, object)?;
        let name = object.name_any();
        let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let gone = format!("{name} is removed");
        eventually(&gone, SOON, async || {
            match api.get_opt(&name).await {
                Ok(None) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                Err(error) => Err(error.into()),
                Ok(Some(left)) => {
                    // The API server's own finalizer of CRDs is removed by itself.
                    let kind = object.types.as_ref().map(|types| types.kind.as_str());
                    if kind != Some("CustomResourceDefinition") && kind != Some("Namespace") {
                        api.patch(&name, &PatchParams::default(), &none)
                            .await
                            .map(drop)
                            .or_else(ignore_absent)?;
                    }
                    bail!("still exists with {:?}", left.finalizers())
                }
            }
        })
        .await?;
    }
    Ok(())
}

fn ignore_absent(error: kube::Error) -> Result<()> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error.into()),
    }
}
