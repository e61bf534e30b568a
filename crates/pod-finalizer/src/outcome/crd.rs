//! The CustomResourceDefinition of `PodOutcome`, generated from its Rust type.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{PodOutcomeSpec, resource};

/// The definition, as input for `kubectl apply`. The [module's example](crate::outcome) has its
/// definition.
pub fn crd() -> Value {
    let kind = resource();
    let column = |name: &str, column_type: &str, path: &str| json!({ "name": name, "type": column_type, "jsonPath": path });
    // A server drops a priority of zero: if it were written, every apply would show a difference.
    let wide = |name: &str, path: &str| json!({ "name": name, "type": "string", "jsonPath": path, "priority": 1 });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.to_string(),
            "labels": { "app.kubernetes.io/name": "belayer" },
        },
        "spec": {
            "group": &*kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": &*kind.kind,
                "listKind": format!("{}List", kind.kind),
                "plural": &*kind.plural,
                "singular": "podoutcome",
                "shortNames": ["pout"],
            },
            "versions": [{
                "name": &*kind.version,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    column("Pod", "string", ".spec.podName"),
                    column("Phase", "string", ".spec.phase"),
                    column("Exit", "integer", ".spec.exitCode"),
                    column("Complete", "boolean", ".spec.complete"),
                    column("Finished", "date", ".spec.finishedAt"),
                    wide("Node", ".spec.nodeName"),
                    wide("Reason", ".spec.reason"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": { "openAPIV3Schema": {
                    "description": "How a pod ended. Written by Belayer before it releases the pod.",
                    "type": "object",
                    "required": ["spec"],
                    "properties": { "spec": spec() },
                } },
            }],
        },
    })
}

/// The structural schema of the spec, without references or nulls, as a CRD requires it.
fn spec() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<PodOutcomeSpec>()
        .to_value();
    tidy(&mut schema);
    schema
}

/// Removes what an API server ignores or rejects.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("title");
            fields.remove("$schema");
            fields.remove("default");
            // Belayer never writes null.
            fields.remove("nullable");
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_structural() {
        let crd = crd();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let text = schema.to_string();
        for refused in ["$ref", "\"null\"", "definitions", "anyOf", "oneOf"] {
            assert!(!text.contains(refused), "{refused} in {text}");
        }
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["type"], "object");
        let item = &spec["properties"]["containers"]["items"];
        assert_eq!(item["properties"]["exitCode"]["type"], "integer");
        assert_eq!(spec["properties"]["exitCode"]["type"], "integer");
        // Of a list `kubectl get` shows the first value that exists.
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].to_string();
        assert!(!columns.contains("[*]"), "{columns}");
        let required: Vec<&str> = spec["required"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert!(required.contains(&"podUID") && !required.contains(&"nodeName"));
    }
}
