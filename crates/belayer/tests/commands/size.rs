//! 100,000 objects of 60 kinds: time, requests and memory. Run it by hand, because it takes long:
//! `cargo test --workspace --test stuck -- --ignored --nocapture a_hundred_thousand`.

use std::time::{Duration, Instant};

use belayer_sandbox::Gvr;
use serde_json::json;

use crate::world::World;

const KINDS: usize = 60;
const OBJECTS: usize = 100_000;
const NAMESPACES: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_1000_objects_and_every_kind_is_listed_once() {
    let world = World::new().await;
    fill(&world, 2, 2_400);
    let answer = world.run(&["stuck", "-ojson"]).await;
    let report = answer.json();
    assert!(report["summary"]["objects"].as_u64().unwrap() >= 2_400);
    let lists = |resource: &str| {
        let verb = belayer_sandbox::Verb::List;
        world
            .sandbox
            .recorder()
            .requests(crate::world::TOOL, verb, resource)
    };
    assert_eq!(lists("things0s.size.example.com"), 2);
    assert_eq!(lists("configmaps"), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a minute; prints figures"]
async fn a_hundred_thousand_objects_of_sixty_kinds() {
    let world = World::new().await;
    fill(&world, KINDS, OBJECTS);
    for index in 0..100 {
        world.stuck_config_map(&format!("c{index}"), "strimzi.io/topic-operator", json!({}));
    }
    let started = Instant::now();
    let mut child = world
        .command(&["stuck"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = String::new();
    while child.try_wait().unwrap().is_none() {
        if let Ok(text) = std::fs::read_to_string(&status) {
            let line = text.lines().find(|line| line.starts_with("VmHWM"));
            peak = line.unwrap_or(&peak).to_owned();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = started.elapsed();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    world.wrote_nothing();
    println!("{}", text.lines().last().unwrap_or_default());
    println!(
        "{took:.1?}, {} requests about objects, peak memory {peak}",
        world.requests()
    );
}

/// This many custom kinds, and objects spread over them, like those of workloads: with labels, an owner and
/// managed fields.
fn fill(world: &World, kinds: usize, objects: usize) {
    for kind in 0..kinds {
        let (plural, name) = (format!("things{kind}s"), format!("Things{kind}"));
        world.create(
            &Gvr::CUSTOMRESOURCEDEFINITIONS,
            None,
            json!({
                "metadata": {"name": format!("{plural}.size.example.com")},
                "spec": {
                    "group": "size.example.com", "scope": "Namespaced",
                    "names": {"kind": name, "listKind": format!("{name}List"), "plural": plural, "singular": name.to_lowercase()},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
                },
            }),
        );
    }
    for index in 0..NAMESPACES {
        world.create(
            &Gvr::NAMESPACES,
            None,
            json!({"metadata": {"name": format!("n{index}")}}),
        );
    }
    for index in 0..objects {
        let kind = index % kinds;
        let gvr = Gvr::new("size.example.com", "v1", format!("things{kind}s"));
        let namespace = format!("n{}", index % NAMESPACES);
        world.create(
            &gvr,
            Some(&namespace),
            json!({
                "apiVersion": "size.example.com/v1", "kind": format!("Things{kind}"),
                "metadata": {
                    "name": format!("object-{index}"),
                    "labels": {"app": "size", "tier": format!("t{}", index % 7)},
                    "managedFields": [{"manager": "size-controller", "operation": "Update", "apiVersion": "size.example.com/v1",
                        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}, "f:tier": {}}}, "f:spec": {"f:a": {}, "f:b": {}, "f:c": {}}}}],
                },
                "spec": {"a": "some text that a list of metadata leaves out", "b": 1, "c": true},
            }),
        );
    }
}
