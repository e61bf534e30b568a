//! The list of what the binary is built from, in the format CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cargo::cargo;

/// Writes the file for programs of this platform.
pub(super) fn write(path: &Path, host: &str) -> Result<()> {
    let output = cargo()
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--format-version",
            "1",
            "--filter-platform",
            host,
        ])
        .output()
        .context("start cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let bom = bom(&metadata)?;
    fs::write(path, serde_json::to_string_pretty(&bom)? + "\n").context("write the dependencies")
}

/// The packages that `belayer` depends on, without those of tests and builds.
fn bom(metadata: &Value) -> Result<Value> {
    let all = |key: &str| metadata[key].as_array().into_iter().flatten();
    let packages: BTreeMap<&str, &Value> = all("packages")
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten();
    let nodes: BTreeMap<&str, &Value> = nodes
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let program = packages
        .values()
        .find(|package| package["name"] == "belayer");
    let program = program.context("no package belayer")?;
    let mut seen = BTreeSet::new();
    let mut open = vec![program["id"].as_str().unwrap_or_default()];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let edges = nodes.get(id).and_then(|node| node["deps"].as_array());
        let normal = edges.into_iter().flatten().filter(|edge| {
            let kinds = edge["dep_kinds"].as_array().into_iter().flatten();
            kinds.into_iter().any(|kind| kind["kind"].is_null())
        });
        open.extend(normal.filter_map(|edge| edge["pkg"].as_str()));
    }
    let components = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|package| {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            let reference = format!("pkg:cargo/{}@{}", text("name"), text("version"));
            json!({
                "type": "library", "name": text("name"), "version": text("version"),
                "bom-ref": reference, "purl": reference,
                "licenses": [{ "expression": text("license").replace('/', " OR ") }],
            })
        });
    let components: Vec<Value> = components.collect();
    ensure!(
        components.len() > 50,
        "only {} dependencies",
        components.len()
    );
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "belayer", "version": program["version"],
        } },
        "components": components,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn metadata() -> Value {
        let many = (0..60).map(|n| format!("c{n}"));
        let mut packages = vec![
            json!({ "id": "belayer", "name": "belayer", "version": "1.0.0", "license": "MIT" }),
        ];
        packages.extend(many.clone().chain(["only-tests".to_owned()]).map(
            |name| json!({ "id": name, "name": name, "version": "2.0.0", "license": "MIT/Apache-2.0" }),
        ));
        let mut deps: Vec<Value> = many
            .map(|name| json!({ "pkg": name, "dep_kinds": [{ "kind": null }] }))
            .collect();
        deps.push(json!({ "pkg": "only-tests", "dep_kinds": [{ "kind": "dev" }] }));
        json!({ "packages": packages, "resolve": { "nodes": [{ "id": "belayer", "deps": deps }] } })
    }

    #[test]
    fn release_the_sbom_names_what_is_shipped_and_no_more() {
        let bom = bom(&metadata()).unwrap();
        let components = bom["components"].as_array().unwrap();
        assert_eq!(components.len(), 61);
        assert!(components.iter().all(|one| one["name"] != "only-tests"));
        let one = components.iter().find(|one| one["name"] == "c1").unwrap();
        assert_eq!(one["purl"], "pkg:cargo/c1@2.0.0");
        assert_eq!(one["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
