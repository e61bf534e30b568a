//! The CustomResourceDefinitions of `PodRecreation` and `NodeWipe`. Its records are named as in
//! the [crate's example](crate).

/// The definition as YAML, ready for `kubectl apply`.
pub const YAML: &str = include_str!("crd.yaml");

/// That of `NodeWipe`.
pub const NODE_WIPE_YAML: &str = include_str!("node-wipe-crd.yaml");

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::{
        Condition, ConditionStatus, GROUP, Growth, KIND, PLURAL, Phase, Policy, Spec, Status,
        VERSION,
    };

    fn definition() -> Value {
        serde_saphyr::from_str(YAML).unwrap()
    }

    #[test]
    fn it_defines_the_kind() {
        let crd = definition();
        assert_eq!(crd["metadata"]["name"], format!("{PLURAL}.{GROUP}"));
        assert_eq!(crd["spec"]["names"]["kind"], KIND);
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], VERSION);
        assert!(version["subresources"]["status"].is_object());
    }

    #[test]
    fn the_manifest_is_what_the_binary_prints() {
        let shipped = [
            (
                include_str!("../../../deploy/manifests/crd-pod-recreation.yaml"),
                YAML,
            ),
            (
                include_str!("../../../deploy/manifests/crd-node-wipe.yaml"),
                NODE_WIPE_YAML,
            ),
        ];
        for (manifest, yaml) in shipped {
            let (_, manifest) = manifest.split_once(".yaml\n").unwrap();
            assert_eq!(manifest.trim_end(), yaml.trim_end());
        }
    }

    /// The API server prunes fields that are not in the schema.
    fn assert_named(schema: &Value, value: &Value, path: &str) {
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            return;
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let inner = &schema["properties"][name];
                    assert!(inner.is_object(), "{path}.{name} is not in the schema");
                    assert_named(inner, field, &format!("{path}.{name}"));
                }
            }
            Value::Array(items) => {
                for item in items {
                    assert_named(&schema["items"], item, &format!("{path}[]"));
                }
            }
            Value::String(text) => {
                assert_eq!(schema["type"], "string", "{path}");
                if let Some(known) = schema["enum"].as_array() {
                    assert!(known.iter().any(|k| k == text), "{path}: {text}");
                }
            }
            Value::Number(number) => {
                let r#type = if number.is_f64() { "number" } else { "integer" };
                assert_eq!(schema["type"], r#type, "{path}");
            }
            Value::Bool(_) => assert_eq!(schema["type"], "boolean", "{path}"),
            Value::Null => {}
        }
    }

    #[test]
    fn every_field_is_in_the_schema() {
        let time = jiff::Timestamp::UNIX_EPOCH;
        let phases = [
            Phase::Rejected,
            Phase::Deleting,
            Phase::Waiting,
            Phase::Creating,
            Phase::Recreated,
            Phase::Started,
            Phase::Exhausted,
            Phase::Ended,
        ];
        let schema = &definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for phase in phases {
            let status = Status {
                phase: Some(phase),
                attempts: 1,
                pod_starts: 2,
                pod_recreated: 1,
                pod_deletion_time: Some(time),
                rejected_uid: Some("u".into()),
                pod_uid: Some("u".into()),
                node_name: Some("n".into()),
                avoid_nodes: vec!["n".into()],
                reason: Some("OutOfcpu".into()),
                message: Some("m".into()),
                finished_at: Some(time),
                pod_metadata: Some(json!({ "labels": { "app": "web" } })),
                observed_generation: Some(1),
                conditions: vec![Condition {
                    r#type: "PodRejected".into(),
                    status: ConditionStatus::True,
                    reason: "r".into(),
                    message: "m".into(),
                    last_transition_time: time,
                }],
            };
            assert_named(
                &schema["properties"]["status"],
                &serde_json::to_value(status).unwrap(),
                "status",
            );
        }
        let spec = Spec {
            pod_name: "web".into(),
            first_uid: "u".into(),
            policy: Policy {
                backoff: Some(Growth::default()),
                ..Policy::default()
            },
            pod: json!({ "spec": {} }),
        };
        assert_named(
            &schema["properties"]["spec"],
            &serde_json::to_value(spec).unwrap(),
            "spec",
        );
    }
}
