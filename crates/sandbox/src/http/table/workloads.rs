//! The table columns of workloads and Services.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{AGE, Builtin, NAME, lasting, or_none, since};
use crate::meta;

const CONTAINERS: Builtin = ("Containers", "string", "", 1, |o, _| {
    of_containers(o, "name")
});
const IMAGES: Builtin = ("Images", "string", "", 1, |o, _| of_containers(o, "image"));
const SELECTOR: Builtin = ("Selector", "string", "", 1, |o, _| {
    labels(o, &["spec", "selector", "matchLabels"])
});

/// The columns of a kind, if it is one of these.
pub(super) fn columns(resource: &str) -> Option<&'static [Builtin]> {
    Some(match resource {
        "deployments" => &[
            NAME,
            ("Ready", "string", "", 0, ready),
            ("Up-to-date", "string", "", 0, |o, _| {
                count(o, &["status", "updatedReplicas"])
            }),
            ("Available", "string", "", 0, |o, _| {
                count(o, &["status", "availableReplicas"])
            }),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        "replicasets" => &[
            NAME,
            ("Desired", "integer", "", 0, |o, _| json!(replicas(o))),
            ("Current", "integer", "", 0, |o, _| {
                count(o, &["status", "replicas"])
            }),
            ("Ready", "integer", "", 0, |o, _| {
                count(o, &["status", "readyReplicas"])
            }),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        "statefulsets" => &[
            NAME,
            ("Ready", "string", "", 0, ready),
            AGE,
            CONTAINERS,
            IMAGES,
        ],
        "daemonsets" => &[
            NAME,
            ("Desired", "integer", "", 0, |o, _| {
                count(o, &["status", "desiredNumberScheduled"])
            }),
            ("Current", "integer", "", 0, |o, _| {
                count(o, &["status", "currentNumberScheduled"])
            }),
            ("Ready", "integer", "", 0, |o, _| {
                count(o, &["status", "numberReady"])
            }),
            ("Up-to-date", "integer", "", 0, |o, _| {
                count(o, &["status", "updatedNumberScheduled"])
            }),
            ("Available", "integer", "", 0, |o, _| {
                count(o, &["status", "numberAvailable"])
            }),
            ("Node Selector", "string", "", 0, |o, _| {
                labels(o, &["spec", "template", "spec", "nodeSelector"])
            }),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        "jobs" => &[
            NAME,
            ("Status", "string", "", 0, job_status),
            ("Completions", "string", "", 0, job_completions),
            ("Duration", "string", "", 0, job_duration),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        "cronjobs" => &[
            NAME,
            ("Schedule", "string", "", 0, |o, _| {
                json!(meta::text(o, &["spec", "schedule"]))
            }),
            ("Timezone", "string", "", 0, |o, _| {
                or_none(o, &["spec", "timeZone"])
            }),
            ("Suspend", "boolean", "", 0, |o, _| {
                let suspended = meta::at(o, &["spec", "suspend"]) == Some(&Value::Bool(true));
                json!(if suspended { "True" } else { "False" })
            }),
            ("Active", "integer", "", 0, |o, _| {
                let active = meta::at(o, &["status", "active"]).and_then(Value::as_array);
                json!(active.map_or(0, Vec::len))
            }),
            ("Last Schedule", "string", "", 0, |o, now| match meta::text(
                o,
                &["status", "lastScheduleTime"],
            ) {
                "" => json!("<none>"),
                at => json!(since(at, now)),
            }),
            AGE,
            CONTAINERS,
            IMAGES,
            ("Selector", "string", "", 1, |o, _| {
                let spec = ["spec", "jobTemplate", "spec", "selector", "matchLabels"];
                labels(o, &spec)
            }),
        ],
        "services" => &[
            NAME,
            ("Type", "string", "", 0, |o, _| json!(service_type(o))),
            ("Cluster-IP", "string", "", 0, |o, _| {
                or_none(o, &["spec", "clusterIP"])
            }),
            ("External-IP", "string", "", 0, external_ip),
            ("Port(s)", "string", "", 0, ports),
            AGE,
            ("Selector", "string", "", 1, |o, _| {
                labels(o, &["spec", "selector"])
            }),
        ],
        _ => return None,
    })
}

fn number(object: &Value, path: &[&str]) -> i64 {
    let found = meta::at(object, path).and_then(Value::as_i64);
    found.unwrap_or(0)
}

fn count(object: &Value, path: &[&str]) -> Value {
    json!(number(object, path))
}

fn replicas(object: &Value) -> i64 {
    let wanted = meta::at(object, &["spec", "replicas"]).and_then(Value::as_i64);
    wanted.unwrap_or(1)
}

fn ready(object: &Value, _: Timestamp) -> Value {
    let ready = number(object, &["status", "readyReplicas"]);
    json!(format!("{ready}/{}", replicas(object)))
}

fn items<'a>(object: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    let list = meta::at(object, path).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<&str>>().join(",")
}

fn of_containers(object: &Value, field: &str) -> Value {
    let inner = match meta::at(object, &["spec", "jobTemplate"]) {
        Some(template) => template,
        None => object,
    };
    let containers = items(inner, &["spec", "template", "spec", "containers"]);
    json!(joined(containers.map(|c| meta::text(c, &[field]))))
}

fn labels(object: &Value, path: &[&str]) -> Value {
    let found = meta::at(object, path).and_then(Value::as_object);
    let pair =
        |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
    let pairs: Vec<String> = found.into_iter().flatten().map(pair).collect();
    json!(if pairs.is_empty() {
        "<none>".to_owned()
    } else {
        pairs.join(",")
    })
}

fn job_status(job: &Value, _: Timestamp) -> Value {
    let has = |kind: &str| {
        items(job, &["status", "conditions"]).any(|condition| {
            meta::text(condition, &["type"]) == kind && meta::text(condition, &["status"]) == "True"
        })
    };
    let is_suspended = meta::at(job, &["spec", "suspend"]) == Some(&Value::Bool(true));
    let status = ["Complete", "Failed"].into_iter().find(|kind| has(kind));
    let status = status.unwrap_or_else(|| match () {
        () if meta::is_deleting(job) => "Terminating",
        () if is_suspended => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    });
    json!(status)
}

fn job_completions(job: &Value, _: Timestamp) -> Value {
    let done = number(job, &["status", "succeeded"]);
    let wanted = meta::at(job, &["spec", "completions"]).and_then(Value::as_i64);
    let parallel = number(job, &["spec", "parallelism"]);
    json!(match wanted {
        Some(wanted) => format!("{done}/{wanted}"),
        None if parallel > 1 => format!("{done}/1 of {parallel}"),
        None => format!("{done}/1"),
    })
}

fn job_duration(job: &Value, now: Timestamp) -> Value {
    let time = |field| meta::text(job, &["status", field]).parse::<Timestamp>();
    let Ok(began) = time("startTime") else {
        return json!("");
    };
    json!(lasting(began, time("completionTime").unwrap_or(now)))
}

fn service_type(service: &Value) -> &str {
    match meta::text(service, &["spec", "type"]) {
        "" => "ClusterIP",
        kind => kind,
    }
}

fn external_ip(service: &Value, _: Timestamp) -> Value {
    let listed = joined(items(service, &["spec", "externalIPs"]).filter_map(Value::as_str));
    let shown = match service_type(service) {
        "ExternalName" => meta::text(service, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            let entry = ["status", "loadBalancer", "ingress"];
            let address = |one| match meta::text(one, &["ip"]) {
                "" => meta::text(one, &["hostname"]),
                ip => ip,
            };
            let given = joined(items(service, &entry).map(address));
            let all = [given, listed].into_iter().filter(|text| !text.is_empty());
            match all.collect::<Vec<String>>().join(",") {
                none if none.is_empty() => "<pending>".to_owned(),
                all => all,
            }
        }
        _ => listed,
    };
    json!(if shown.is_empty() {
        "<none>".to_owned()
    } else {
        shown
    })
}

fn ports(service: &Value, _: Timestamp) -> Value {
    let show = |port: &Value| {
        let protocol = match meta::text(port, &["protocol"]) {
            "" => "TCP",
            protocol => protocol,
        };
        let (own, node) = (number(port, &["port"]), number(port, &["nodePort"]));
        match node {
            0 => format!("{own}/{protocol}"),
            node => format!("{own}:{node}/{protocol}"),
        }
    };
    let all: Vec<String> = items(service, &["spec", "ports"]).map(show).collect();
    json!(if all.is_empty() {
        "<none>".to_owned()
    } else {
        all.join(",")
    })
}
