use prost::encoding::{WireType, encode_key, encode_varint};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// A field with a length.
fn part(number: u32, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(bytes.as_ref().len() as u64, &mut out);
    out.extend(bytes.as_ref());
    out
}

fn int(number: u32, value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(number, WireType::Varint, &mut out);
    encode_varint(value.cast_unsigned(), &mut out);
    out
}

fn entry(number: u32, key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    part(number, [part(1, key), part(2, value)].concat())
}

fn body(version: &str, kind: &str, raw: impl AsRef<[u8]>) -> Vec<u8> {
    let type_meta = part(1, [part(1, version), part(2, kind)].concat());
    let empty = [part(3, ""), part(4, "")].concat();
    [MAGIC, &type_meta[..], &part(2, raw)[..], &empty[..]].concat()
}

fn named(name: &str) -> Vec<u8> {
    // Name, an empty generateName, and a time that is not set, as Go writes them.
    part(1, [part(1, name), part(2, ""), part(8, "")].concat())
}

fn read_as(version: &str, kind: &str, raw: &[u8]) -> Value {
    let mut value = read(&body(version, kind, raw), "", "").unwrap();
    // What was read is what the type has, with nothing unknown.
    let (group, bare) = version.split_once('/').unwrap_or(("", version));
    if let Some(name) = types::of_kind(group, bare, kind) {
        assert!(types::decode(name, &mut value).unwrap().is_empty());
    }
    value
}

#[test]
fn every_number_has_a_field_of_the_digest_of_types() {
    assert!(messages().len() > 300);
    let mut served = Vec::new();
    for info in crate::kinds::builtin() {
        let of = types::of_kind(&info.group, &info.storage_version, &info.kind);
        served.push(of.unwrap().to_owned());
    }
    served.extend(
        [
            "core.v1.Binding",
            "policy.v1.Eviction",
            "autoscaling.v1.Scale",
        ]
        .map(str::to_owned),
    );
    for name in served {
        assert!(messages().contains_key(&name), "{name}");
    }
    for fields in messages().values() {
        for field in fields.values() {
            let mut node = &field.node;
            while let Node::List(inner) | Node::Map(inner) = node {
                node = inner;
            }
            if let Node::Message(name) = node {
                assert!(messages().contains_key(name), "{name}");
            }
        }
    }
}

#[test]
fn a_namespace_of_kubectl_is_read_as_from_json() {
    let raw = [named("shop"), part(2, ""), part(3, part(1, ""))].concat();
    let expected = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop"}, "spec": {}, "status": {},
    });
    assert_eq!(read_as("v1", "Namespace", &raw), expected);
}

#[test]
fn texts_bytes_and_maps() {
    let raw = [
        named("m"),
        entry(2, "k", "v"),
        entry(2, "empty", ""),
        part(2, part(1, "bare")),
        entry(3, "b", [0, 255]),
        int(4, 0),
    ];
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
        "data": {"k": "v", "empty": "", "bare": ""}, "binaryData": {"b": "AP8="},
        "immutable": false,
    });
    assert_eq!(read_as("v1", "ConfigMap", &raw.concat()), expected);
}

#[test]
fn a_pod_with_volumes_probes_and_env_is_what_its_json_says() {
    let config_map = part(19, [part(1, part(1, "app")), int(3, 420)].concat());
    let volumes = [
        part(1, [part(1, "scratch"), part(2, part(2, ""))].concat()),
        part(1, [part(1, "settings"), part(2, config_map)].concat()),
    ];
    let port = part(2, [int(1, 1), int(2, 0), part(3, "http")].concat());
    let get = part(
        2,
        [part(1, "/ready"), port, part(3, ""), part(4, "")].concat(),
    );
    let probe = [part(1, get), int(2, 0), int(3, 7), int(4, 0)].concat();
    let key = part(4, [part(1, part(1, "keys")), part(2, "token")].concat());
    let container = [
        part(1, "main"),
        part(2, "busybox"),
        part(5, ""),
        part(
            6,
            [
                part(1, ""),
                int(2, 0),
                int(3, 8080),
                part(4, "TCP"),
                part(5, ""),
            ]
            .concat(),
        ),
        part(7, [part(1, "MODE"), part(2, "fast")].concat()),
        part(7, [part(1, "TOKEN"), part(2, ""), part(3, key)].concat()),
        part(8, entry(1, "cpu", part(1, "100m"))),
        part(
            9,
            [
                part(1, "settings"),
                int(2, 1),
                part(3, "/etc/app"),
                part(4, ""),
            ]
            .concat(),
        ),
        part(11, probe),
        part(14, ""),
        int(16, 0),
        part(19, part(2, part(1, part(1, "more")))),
    ];
    let spec = [
        volumes.concat(),
        part(2, container.concat()),
        part(3, "Never"),
        int(4, 0),
        part(14, [part(4, [5, 200, 1]), int(4, 9), int(5, -1)].concat()),
        int(11, 0),
    ];
    let raw = [
        named("p"),
        part(2, spec.concat()),
        part(3, [part(1, ""), part(3, "")].concat()),
    ];
    let read = read_as("v1", "Pod", &raw.concat());
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "settings", "configMap": {"name": "app", "defaultMode": 420}},
            ],
            "containers": [{
                "name": "main", "image": "busybox",
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "env": [
                    {"name": "MODE", "value": "fast"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "more"}}],
                "resources": {"limits": {"cpu": "100m"}},
                "volumeMounts": [{"name": "settings", "readOnly": true, "mountPath": "/etc/app"}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "timeoutSeconds": 7},
            }],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"supplementalGroups": [5, 200, 9], "fsGroup": -1},
        },
        "status": {},
    });
    assert_eq!(read, expected);
}

#[test]
fn times_micro_times_and_owned_fields() {
    let at = [int(1, 1_700_000_000), int(2, 123_456_789)].concat();
    let entry = [
        part(1, "kubectl"),
        part(4, &at),
        part(7, part(1, r#"{"f:data":{}}"#)),
    ]
    .concat();
    let raw = part(1, [part(1, "l"), part(8, &at), part(17, entry)].concat());
    let raw = [raw, part(2, part(4, &at))].concat();
    let lease = read_as("coordination.k8s.io/v1", "Lease", &raw);
    assert_eq!(
        lease["metadata"]["creationTimestamp"],
        "2023-11-14T22:13:20Z"
    );
    assert_eq!(lease["spec"]["renewTime"], "2023-11-14T22:13:20.123456Z");
    let managed =
        json!([{"manager": "kubectl", "time": "2023-11-14T22:13:20Z", "fieldsV1": {"f:data": {}}}]);
    assert_eq!(lease["metadata"]["managedFields"], managed);
}

#[test]
fn a_pointer_to_nothing_is_kept_and_a_plain_zero_is_not() {
    let raw = [named("c"), part(2, [part(3, ""), part(5, "")].concat())].concat();
    let pvc = read_as("v1", "PersistentVolumeClaim", &raw);
    assert_eq!(pvc["spec"], json!({"storageClassName": ""}));
}

#[test]
fn schemas_of_custom_kinds() {
    let text = part(5, "string");
    let mut most = Vec::new();
    encode_key(9, WireType::SixtyFourBit, &mut most);
    most.extend(10.0_f64.to_le_bytes());
    let schema = [
        part(5, "object"),
        part(8, part(1, r#"{"a":1}"#)),
        most,
        part(20, part(1, "7")),
        part(30, part(2, &text)),
        int(38, 1),
    ];
    let mut object = Map::new();
    message(
        "apiextensions.v1.JSONSchemaProps",
        &schema.concat(),
        &mut object,
        9,
    )
    .unwrap();
    assert_eq!(
        object["additionalProperties"],
        json!({"type": "string"}),
        "{object:?}"
    );
    assert_eq!(object["default"], json!({"a": 1}));
    assert_eq!(object["maximum"].to_string(), "10");
    assert_eq!(object["enum"], json!([7]));
    assert_eq!(object["x-kubernetes-preserve-unknown-fields"], true);
}

#[test]
fn options_of_a_delete_and_a_scale() {
    let raw = [
        int(1, 0),
        part(2, part(1, "u")),
        part(4, "Foreground"),
        part(5, "All"),
    ]
    .concat();
    let options = read_as("apps/v1", "DeleteOptions", &raw);
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"}, "propagationPolicy": "Foreground", "dryRun": ["All"],
    });
    assert_eq!(options, expected);
    let scale = [
        named("d"),
        part(2, int(1, 3)),
        part(3, [int(1, 0), part(2, "")].concat()),
    ];
    let scale = read_as("autoscaling/v1", "Scale", &scale.concat());
    assert_eq!(scale["spec"], json!({"replicas": 3}));
}

#[test]
fn what_the_envelope_does_not_tell_is_what_is_expected() {
    let bare = [MAGIC, &part(2, named("m"))[..]].concat();
    let read = read(&bare, "v1", "ConfigMap").unwrap();
    assert_eq!(read, json!({"metadata": {"name": "m"}}));
}

#[rstest]
#[case::no_magic(b"{}".to_vec())]
#[case::nothing(Vec::new())]
#[case::cut(b"k8s\0\x12\x7f".to_vec())]
#[case::endless_number(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec())]
#[case::huge_length(b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01".to_vec())]
#[case::group_ends(b"k8s\0\x1c".to_vec())]
#[case::unknown_kind(body("x.dev/v1", "Thing", ""))]
#[case::wrong_wire_type(body("v1", "ConfigMap", int(1, 5)))]
#[case::year_of_no_calendar(body("v1", "Pod", part(1, part(8, int(1, i64::MAX)))))]
#[case::no_json(body("v1", "Pod", part(1, part(17, part(7, part(1, "{"))))))]
fn malformed_bodies_are_refused(#[case] body: Vec<u8>) {
    assert!(read(&body, "v1", "ConfigMap").is_err());
}

#[test]
fn messages_nest_only_so_deep() {
    let mut schema = Vec::new();
    for _ in 0..500 {
        schema = part(28, schema);
    }
    let refused = message(
        "apiextensions.v1.JSONSchemaProps",
        &schema,
        &mut Map::new(),
        DEEPEST,
    );
    assert!(matches!(refused, Err(Malformed::Depth)), "{refused:?}");
}
