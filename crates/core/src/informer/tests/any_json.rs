//! Decoders against arbitrary input.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::damage::{Edit, damaged};
use crate::informer::{Decoder, JsonDecoder, WatchEvent};
use crate::slim::json::SlimJson;
use crate::slim::{DecodeContext, Keep, Namespace, OwnerMeta, Pod};

proptest! {
    #[test]
    fn any_json_in_a_list_does_not_affect_other_items(before in 0..3_usize, bad in any_object(), after in 0..3_usize) {
        list_survives::<Pod>(before, &bad, after)?;
        list_survives::<OwnerMeta>(before, &bad, after)?;
        list_survives::<Namespace>(before, &bad, after)?;
    }

    #[test]
    fn any_json_in_a_watch_is_an_event_or_bad(object in any_object(), kind in kind()) {
        let frame = json!({"type": kind, "object": object}).to_string();
        decoder::<Pod>().decode_watch_event(frame.as_bytes());
        decoder::<OwnerMeta>().decode_watch_event(frame.as_bytes());
        decoder::<Pod>().decode_watch_event(object.to_string().as_bytes());
    }

    #[test]
    fn a_truncated_object_is_never_taken_for_another(
        object in any_object(),
        end in 0..4000_usize,
    ) {
        let frame = json!({"type": "ADDED", "object": object}).to_string();
        let end = end.min(frame.len() - 1);
        let event = decoder::<Pod>().decode_watch_event(&frame.as_bytes()[..end]);
        let WatchEvent::Bad(bad) = event else {
            return Err(TestCaseError::fail("a truncated object was decoded as a whole"));
        };
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        prop_assert!(bad.key.is_none_or(|key| Some(key.name()) == name));
    }

    /// Text that is nearly that of a pod, in a watch and in a list.
    #[test]
    fn fuzz_damaged_json_is_decoded_or_bad(
        edits in proptest::collection::vec(any::<Edit>(), 1..8),
    ) {
        let decoder = decoder::<Pod>();
        let frame = json!({"type": "MODIFIED", "object": whole_pod()}).to_string();
        decoder.decode_watch_event(&damaged(frame.as_bytes(), &edits));
        let list = json!({"metadata": {"resourceVersion": "5"}, "items": [whole_pod(), whole_pod()]});
        let list = damaged(list.to_string().as_bytes(), &edits);
        if let Ok(page) = decoder.decode_page(&Bytes::from(list)) {
            prop_assert!(page.items.len() < 100);
        }
        let _ = decoder.decode_object(&damaged(whole_pod().to_string().as_bytes(), &edits));
    }

    #[test]
    fn any_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let decoder = decoder::<Pod>();
        let _ = decoder.decode_object(&bytes);
        let _ = decoder.decode_page(&Bytes::from(bytes.clone()));
        decoder.decode_watch_event(&bytes);
    }
}

fn decoder<K: SlimJson>() -> JsonDecoder<K> {
    let keep = Keep::nothing().labels(["a"]).annotations(["a"]);
    JsonDecoder::new(DecodeContext {
        keep,
        ..DecodeContext::default()
    })
}

fn list_survives<K: SlimJson>(
    before: usize,
    bad: &Value,
    after: usize,
) -> Result<(), TestCaseError> {
    let good = json!({"metadata": {"name": "good", "uid": "u", "resourceVersion": "1"}});
    let mut items = vec![good.clone(); before];
    items.push(bad.clone());
    items.extend(vec![good; after]);
    let list = json!({"metadata": {"resourceVersion": "5"}, "items": items}).to_string();
    let page = decoder::<K>().decode_page(&Bytes::from(list)).unwrap();
    prop_assert_eq!(page.items.len(), before + 1 + after);
    for (place, item) in page.items.iter().enumerate() {
        prop_assert!(place == before || item.is_ok());
    }
    Ok(())
}

fn kind() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "added", "",
    ])
}

/// Any JSON, preferably with names and values that have a meaning in a pod.
fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        proptest::sample::select(vec![
            "",
            "a",
            "1",
            "-1",
            "2026-01-01T00:00:00Z",
            "kubelet",
            "status"
        ])
        .prop_map(str::to_owned),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(field(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn field() -> impl Strategy<Value = String> {
    let known = vec![
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "controller",
        "managedFields",
        "manager",
        "subresource",
        "time",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "volumes",
        "persistentVolumeClaim",
        "claimName",
        "ephemeral",
        "nodeName",
        "hostNetwork",
        "phase",
        "podIP",
        "containerStatuses",
        "state",
        "lastState",
        "running",
        "terminated",
        "startedAt",
        "a",
    ];
    prop_oneof![
        4 => proptest::sample::select(known).prop_map(str::to_owned),
        1 => ".{0,6}",
    ]
}

/// A pod in which one field has any value, or any JSON.
fn any_object() -> impl Strategy<Value = Value> {
    let mut paths = vec![String::new()];
    paths_of(&whole_pod(), "", &mut paths);
    let broken = (proptest::sample::select(paths), any_json()).prop_map(|(path, value)| {
        let mut pod = whole_pod();
        *pod.pointer_mut(&path).unwrap() = value;
        pod
    });
    prop_oneof![3 => broken, 1 => any_json()]
}

fn paths_of(value: &Value, path: &str, paths: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), value))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        paths_of(child, &path, paths);
        paths.push(path);
    }
}

fn whole_pod() -> Value {
    json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30,
            "finalizers": ["x/y"], "labels": {"a": "b"}, "annotations": {"a": "b"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "ou", "controller": true}],
            "managedFields": [{"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:00Z"}],
        },
        "spec": {
            "nodeName": "node-1", "hostNetwork": false,
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}}],
        },
        "status": {
            "phase": "Failed", "reason": "r", "message": "m", "podIP": "10.0.0.1",
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{
                "state": {"terminated": {"startedAt": "2026-01-01T00:00:00Z"}},
                "lastState": {}, "started": false, "restartCount": 0,
            }],
        },
    })
}
