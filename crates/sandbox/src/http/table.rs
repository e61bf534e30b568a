//! Tables, as `kubectl get` prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{Column, ResourceInfo};
use crate::meta;
use crate::wire::Partial;

type Cell = fn(&Value, Timestamp) -> Value;

/// Heading, type, format, priority, and what stands in the cell.
type Builtin = (&'static str, &'static str, &'static str, i32, Cell);

/// The table of these objects, without `apiVersion` and `metadata`.
pub(super) fn table(
    info: &ResourceInfo,
    version: &str,
    objects: &[&Value],
    include_object: &str,
    now: Timestamp,
) -> Value {
    let custom = info
        .version(version)
        .map_or(&[][..], |v| v.columns.as_slice());
    let (columns, rows) = if info.custom {
        (custom_columns(custom), custom_rows(custom, objects, now))
    } else {
        let columns = builtin(&info.resource);
        let cells = |o: &Value| {
            columns
                .iter()
                .map(|(.., cell)| cell(o, now))
                .collect::<Vec<_>>()
        };
        let rows = objects.iter().map(|o| cells(o)).collect();
        let defs = columns.iter().map(|(name, kind, format, priority, _)| {
            json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
        });
        (defs.collect(), rows)
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| row(cells, object, include_object))
        .collect();
    json!({"kind": "Table", "columnDefinitions": Value::Array(columns), "rows": rows})
}

fn row(cells: Vec<Value>, object: &Value, include_object: &str) -> Value {
    let mut row = json!({"cells": cells});
    row["object"] = match include_object {
        "None" => return row,
        "Object" => object.clone(),
        _ => serde_json::to_value(Partial(object)).unwrap_or_default(),
    };
    row
}

fn custom_columns(custom: &[Column]) -> Vec<Value> {
    let mut columns = vec![json!({
        "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0,
    })];
    columns.extend(custom.iter().map(|c| {
        json!({
            "name": c.name, "type": c.kind, "format": c.format, "description": c.description,
            "priority": c.priority,
        })
    }));
    if custom.is_empty() {
        columns.push(json!({
            "name": "Age", "type": "date", "format": "", "description": "", "priority": 0,
        }));
    }
    columns
}

fn custom_rows(custom: &[Column], objects: &[&Value], now: Timestamp) -> Vec<Vec<Value>> {
    let cells = |object: &&Value| {
        let mut cells = vec![name(object, now)];
        cells.extend(custom.iter().map(|c| custom_cell(c, object, now)));
        if custom.is_empty() {
            cells.push(age(object, now));
        }
        cells
    };
    objects.iter().map(cells).collect()
}

/// Follows a plain JSON path (`.a.b[0].c`); anything fancier prints nothing.
fn custom_cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let mut found = Some(object);
    for part in column.path.split(['.', '[']).filter(|p| !p.is_empty()) {
        found = found.and_then(|value| match part.strip_suffix(']') {
            Some(index) => match index.parse::<usize>() {
                Ok(index) => value.get(index),
                Err(_) => value.get(index.trim_matches(['\'', '"'])),
            },
            None => value.get(part),
        });
    }
    match (found, column.kind.as_str()) {
        (None, _) => Value::Null,
        (Some(Value::String(at)), "date") => json!(since(at, now)),
        (Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))), _) => value.clone(),
        (Some(other), _) => json!(other.to_string()),
    }
}

const NAME: Builtin = ("Name", "string", "name", 0, name);
const AGE: Builtin = ("Age", "string", "", 0, age);
const DATA: Builtin = ("Data", "string", "", 0, |o, _| {
    let keys = |field: &str| {
        o.get(field)
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len)
    };
    json!((keys("data") + keys("binaryData")).to_string())
});
const ATTRIBUTES_CLASS: Builtin = ("VolumeAttributesClass", "string", "", 0, |o, _| {
    json!(unset(meta::text(o, &["spec", "volumeAttributesClassName"])))
});
const VOLUME_MODE: Builtin = ("VolumeMode", "string", "", 1, |o, _| {
    json!(unset(meta::text(o, &["spec", "volumeMode"])))
});

fn unset(text: &str) -> &str {
    if text.is_empty() { "<unset>" } else { text }
}

fn builtin(resource: &str) -> &'static [Builtin] {
    match resource {
        "pods" => &[
            NAME,
            ("Ready", "string", "", 0, pod_ready),
            ("Status", "string", "", 0, pod_status),
            ("Restarts", "string", "", 0, pod_restarts),
            AGE,
            ("IP", "string", "", 1, |o, _| {
                or_none(o, &["status", "podIP"])
            }),
            ("Node", "string", "", 1, |o, _| {
                or_none(o, &["spec", "nodeName"])
            }),
            ("Nominated Node", "string", "", 1, |o, _| {
                or_none(o, &["status", "nominatedNodeName"])
            }),
            ("Readiness Gates", "string", "", 1, |_, _| json!("<none>")),
        ],
        "namespaces" => &[
            NAME,
            ("Status", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "phase"]))
            }),
            AGE,
        ],
        "nodes" => &[
            NAME,
            ("Status", "string", "", 0, node_status),
            ("Roles", "string", "", 0, node_roles),
            AGE,
            ("Version", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "nodeInfo", "kubeletVersion"]))
            }),
            ("Internal-IP", "string", "", 1, |o, _| {
                node_address(o, "InternalIP")
            }),
            ("External-IP", "string", "", 1, |o, _| {
                node_address(o, "ExternalIP")
            }),
            ("OS-Image", "string", "", 1, |o, _| node_info(o, "osImage")),
            ("Kernel-Version", "string", "", 1, |o, _| {
                node_info(o, "kernelVersion")
            }),
            ("Container-Runtime", "string", "", 1, |o, _| {
                node_info(o, "containerRuntimeVersion")
            }),
        ],
        "persistentvolumeclaims" => &[
            NAME,
            ("Status", "string", "", 0, claim_status),
            ("Volume", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "volumeName"]))
            }),
            ("Capacity", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "capacity", "storage"]))
            }),
            ("Access Modes", "string", "", 0, |o, _| {
                access_modes(o, "status")
            }),
            ("StorageClass", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "storageClassName"]))
            }),
            ATTRIBUTES_CLASS,
            AGE,
            VOLUME_MODE,
        ],
        "persistentvolumes" => &[
            NAME,
            ("Capacity", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "capacity", "storage"]))
            }),
            ("Access Modes", "string", "", 0, |o, _| {
                access_modes(o, "spec")
            }),
            ("Reclaim Policy", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "persistentVolumeReclaimPolicy"]))
            }),
            ("Status", "string", "", 0, claim_status),
            ("Claim", "string", "", 0, |o, _| {
                let part = |name| meta::text(o, &["spec", "claimRef", name]).to_owned();
                let (home, name) = (part("namespace"), part("name"));
                json!(if name.is_empty() {
                    name
                } else {
                    format!("{home}/{name}")
                })
            }),
            ("StorageClass", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "storageClassName"]))
            }),
            ATTRIBUTES_CLASS,
            ("Reason", "string", "", 0, |o, _| {
                json!(meta::text(o, &["status", "reason"]))
            }),
            AGE,
            VOLUME_MODE,
        ],
        "events" => &[
            ("Last Seen", "string", "", 0, event_seen),
            ("Type", "string", "", 0, |o, _| {
                json!(meta::text(o, &["type"]))
            }),
            ("Reason", "string", "", 0, |o, _| {
                json!(meta::text(o, &["reason"]))
            }),
            ("Object", "string", "", 0, event_object),
            ("Subobject", "string", "", 1, |o, _| {
                json!(meta::text(o, &["involvedObject", "fieldPath"]))
            }),
            ("Source", "string", "", 1, event_source),
            ("Message", "string", "", 0, |o, _| {
                json!(meta::text(o, &["message"]).trim())
            }),
            ("First Seen", "string", "", 1, event_first_seen),
            ("Count", "string", "", 1, |o, _| {
                let count = o.get("count").and_then(Value::as_i64).unwrap_or(0);
                json!(count.max(1).to_string())
            }),
            ("Name", "string", "name", 1, name),
        ],
        "customresourcedefinitions" => &[
            NAME,
            ("Created At", "date", "", 0, |o, _| {
                json!(meta::field(o, "creationTimestamp"))
            }),
        ],
        "configmaps" => &[NAME, DATA, AGE],
        "secrets" => &[
            NAME,
            ("Type", "string", "", 0, |o, _| {
                json!(meta::text(o, &["type"]))
            }),
            DATA,
            AGE,
        ],
        "leases" => &[
            NAME,
            ("Holder", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "holderIdentity"]))
            }),
            AGE,
        ],
        _ => &[NAME, AGE],
    }
}

fn name(object: &Value, _: Timestamp) -> Value {
    json!(meta::name(object))
}

fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(meta::field(object, "creationTimestamp"), now))
}

fn or_none(object: &Value, path: &[&str]) -> Value {
    let text = meta::text(object, path);
    json!(if text.is_empty() { "<none>" } else { text })
}

fn since(at: &str, now: Timestamp) -> String {
    let Ok(at) = at.parse::<Timestamp>() else {
        return "<unknown>".into();
    };
    human(now.as_second() - at.as_second())
}

/// Seconds in the two units that matter at that size.
fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |big: i64, big_word: &str, small: i64, small_word: &str| {
        let rest = seconds % big / small;
        let head = format!("{}{big_word}", seconds / big);
        if rest == 0 {
            head
        } else {
            format!("{head}{rest}{small_word}")
        }
    };
    match seconds {
        s if s < -1 => "<invalid>".into(),
        s if s < 0 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(MINUTE, "m", 1, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(HOUR, "h", MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(DAY, "d", HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => pair(YEAR, "y", DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

fn statuses<'a>(pod: &'a Value, list: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    meta::at(pod, &["status", list])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn pod_ready(pod: &Value, _: Timestamp) -> Value {
    let all = meta::at(pod, &["spec", "containers"])
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let ready = statuses(pod, "containerStatuses")
        .filter(|s| {
            s.get("ready") == Some(&Value::Bool(true)) && s["state"].get("running").is_some()
        })
        .count();
    json!(format!("{ready}/{all}"))
}

fn pod_status(pod: &Value, _: Timestamp) -> Value {
    let phase = meta::text(pod, &["status", "phase"]);
    let reason = meta::text(pod, &["status", "reason"]);
    let mut shown = if reason.is_empty() { phase } else { reason }.to_owned();
    for status in statuses(pod, "containerStatuses").rev() {
        let waiting = meta::text(status, &["state", "waiting", "reason"]);
        let ended = meta::text(status, &["state", "terminated", "reason"]);
        if !waiting.is_empty() {
            shown = waiting.to_owned();
        } else if !ended.is_empty() {
            shown = ended.to_owned();
        } else if let Some(terminated) = meta::at(status, &["state", "terminated"]) {
            let code = terminated
                .get("exitCode")
                .and_then(Value::as_i64)
                .unwrap_or(0);
            shown = format!("ExitCode:{code}");
        }
    }
    if meta::is_deleting(pod) {
        if reason == "NodeLost" {
            shown = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            shown = "Terminating".into();
        }
    }
    json!(shown)
}

fn pod_restarts(pod: &Value, _: Timestamp) -> Value {
    let restarts = statuses(pod, "containerStatuses");
    let restarts = restarts.filter_map(|s| s.get("restartCount").and_then(Value::as_u64));
    json!(restarts.fold(0u64, u64::saturating_add).to_string())
}

fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = statuses(node, "conditions").find(|c| c.get("type").is_some_and(|t| t == "Ready"));
    let mut shown = match ready.map(|c| meta::text(c, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if meta::at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        shown.push_str(",SchedulingDisabled");
    }
    json!(shown)
}

fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = meta::at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flat_map(|l| l.keys())
        .filter_map(|k| k.strip_prefix("node-role.kubernetes.io/"))
        .filter(|r| !r.is_empty())
        .collect();
    json!(if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    })
}

fn node_address(node: &Value, kind: &str) -> Value {
    let found = statuses(node, "addresses").find(|a| meta::text(a, &["type"]) == kind);
    let address = found.map_or("", |a| meta::text(a, &["address"]));
    json!(if address.is_empty() {
        "<none>"
    } else {
        address
    })
}

fn node_info(node: &Value, field: &str) -> Value {
    let text = meta::text(node, &["status", "nodeInfo", field]);
    json!(if text.is_empty() { "<unknown>" } else { text })
}

fn event_source(event: &Value, _: Timestamp) -> Value {
    let (component, host) = (
        meta::text(event, &["source", "component"]),
        meta::text(event, &["source", "host"]),
    );
    let component = if component.is_empty() {
        meta::text(event, &["reportingComponent"])
    } else {
        component
    };
    json!(if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    })
}

fn event_first_seen(event: &Value, now: Timestamp) -> Value {
    let times = ["firstTimestamp", "eventTime"].map(|field| meta::text(event, &[field]));
    let first = times.into_iter().find(|t| !t.is_empty());
    json!(since(first.unwrap_or_default(), now))
}

fn claim_status(claim: &Value, _: Timestamp) -> Value {
    if meta::is_deleting(claim) {
        return json!("Terminating");
    }
    json!(meta::text(claim, &["status", "phase"]))
}

fn access_modes(object: &Value, part: &str) -> Value {
    let modes = meta::at(object, &[part, "accessModes"]).and_then(Value::as_array);
    let short = modes
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        });
    json!(short.collect::<Vec<_>>().join(","))
}

fn event_seen(event: &Value, now: Timestamp) -> Value {
    let series = meta::text(event, &["series", "lastObservedTime"]);
    let times = [
        series,
        meta::text(event, &["lastTimestamp"]),
        meta::text(event, &["eventTime"]),
    ];
    json!(since(
        times
            .into_iter()
            .find(|t| !t.is_empty())
            .unwrap_or_default(),
        now
    ))
}

fn event_object(event: &Value, _: Timestamp) -> Value {
    let kind = meta::text(event, &["involvedObject", "kind"]).to_lowercase();
    json!(format!(
        "{kind}/{}",
        meta::text(event, &["involvedObject", "name"])
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(-5, "<invalid>")]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(125, "2m5s")]
    #[case(3600, "60m")]
    #[case(4 * 3600 + 60, "4h1m")]
    #[case(47 * 3600, "47h")]
    #[case(3 * 86400, "3d")]
    #[case(100 * 86400, "100d")]
    fn ages_read_as_kubectl_prints_them(#[case] seconds: i64, #[case] wanted: &str) {
        assert_eq!(human(seconds), wanted);
    }
}
