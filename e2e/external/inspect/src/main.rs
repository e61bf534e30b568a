//! An admin's tool on `belayer-inspect` that knows the finalizers of another project.

use anyhow::{Context as _, ensure};
use belayer_inspect::{Inspector, KnownFinalizers, Query, Verdict};
use belayer_sandbox::Sandbox;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams};

const KNOWN: &str = "
- finalizer: shop.example.com/invoices
  owner: invoice-operator
  guards: invoices that were not sent
  lost: those invoices
  hosted: false
  controllers: [{name: invoice-operator, namespace: shop}]
  images: [invoice-operator]
  source: https://shop.example.com/docs
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sandbox = Sandbox::default();
    sandbox.load_yaml(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: march, finalizers: [shop.example.com/invoices]}}",
    )?;
    let maps: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    maps.delete("march", &DeleteParams::default()).await?;

    let known = KnownFinalizers::default().with_yaml(KNOWN)?;
    let inspector = Inspector::new(sandbox.client()).knowing(known);
    let report = inspector.stuck(&Query::default()).await?;
    let group = report.groups.first().context("nothing is stuck")?;
    ensure!(group.verdict == Verdict::ControllerGone, "{group:?}");
    let known = group.known.as_ref().context("its finalizer is not known")?;
    let explained = inspector.explain("configmap", "default", "march").await?;
    ensure!(explained.object.stuck);
    println!(
        "inspect: {}; lost if forced: {}",
        group.headline, known.lost_if_forced
    );
    Ok(())
}
