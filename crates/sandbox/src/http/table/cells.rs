//! The cells of the table columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::meta;

type Cell = fn(&Value, Timestamp) -> Value;

/// Heading, type, format, priority, and the function that renders the cell.
pub(super) type Builtin = (&'static str, &'static str, &'static str, i32, Cell);

pub(super) const NAME: Builtin = ("Name", "string", "name", 0, name);
pub(super) const AGE: Builtin = ("Age", "string", "", 0, age);

pub(super) fn unset(text: &str) -> &str {
    if text.is_empty() { "<unset>" } else { text }
}

pub(super) fn name(object: &Value, _: Timestamp) -> Value {
    json!(meta::name(object))
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(meta::field(object, "creationTimestamp"), now))
}

pub(super) fn or_none(object: &Value, path: &[&str]) -> Value {
    let text = meta::text(object, path);
    json!(if text.is_empty() { "<none>" } else { text })
}

pub(super) fn since(at: &str, now: Timestamp) -> String {
    let Ok(at) = at.parse::<Timestamp>() else {
        return "<unknown>".into();
    };
    human(now.as_second() - at.as_second())
}

/// The time from one moment to another.
pub(super) fn lasting(from: Timestamp, to: Timestamp) -> String {
    human(to.as_second() - from.as_second())
}

/// A duration in seconds, in the two largest units.
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

pub(super) fn pod_ready(pod: &Value, _: Timestamp) -> Value {
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

pub(super) fn pod_status(pod: &Value, _: Timestamp) -> Value {
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

pub(super) fn pod_restarts(pod: &Value, _: Timestamp) -> Value {
    let restarts = statuses(pod, "containerStatuses");
    let restarts = restarts.filter_map(|s| s.get("restartCount").and_then(Value::as_u64));
    json!(restarts.fold(0u64, u64::saturating_add).to_string())
}

pub(super) fn node_status(node: &Value, _: Timestamp) -> Value {
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

pub(super) fn node_roles(node: &Value, _: Timestamp) -> Value {
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

pub(super) fn node_address(node: &Value, kind: &str) -> Value {
    let found = statuses(node, "addresses").find(|a| meta::text(a, &["type"]) == kind);
    let address = found.map_or("", |a| meta::text(a, &["address"]));
    json!(if address.is_empty() {
        "<none>"
    } else {
        address
    })
}

pub(super) fn node_info(node: &Value, field: &str) -> Value {
    let text = meta::text(node, &["status", "nodeInfo", field]);
    json!(if text.is_empty() { "<unknown>" } else { text })
}

pub(super) fn event_source(event: &Value, _: Timestamp) -> Value {
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

pub(super) fn event_first_seen(event: &Value, now: Timestamp) -> Value {
    let times = ["firstTimestamp", "eventTime"].map(|field| meta::text(event, &[field]));
    let first = times.into_iter().find(|t| !t.is_empty());
    json!(since(first.unwrap_or_default(), now))
}

pub(super) fn pvc_status(pvc: &Value, _: Timestamp) -> Value {
    if meta::is_deleting(pvc) {
        return json!("Terminating");
    }
    json!(meta::text(pvc, &["status", "phase"]))
}

pub(super) fn access_modes(object: &Value, part: &str) -> Value {
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

pub(super) fn event_seen(event: &Value, now: Timestamp) -> Value {
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

pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
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
    fn ages_are_formatted_as_by_kubectl(#[case] seconds: i64, #[case] wanted: &str) {
        assert_eq!(human(seconds), wanted);
    }
}
