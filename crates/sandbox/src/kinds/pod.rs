//! Pods: defaults, immutability, grace periods.

use serde_json::{Map, Value, json};

use crate::error::Cause;
use crate::quantity::parse_milli;
use crate::{meta, names};

/// The default grace period, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// The grace period of a first delete, in seconds.
pub(crate) fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let of_spec = || {
        let seconds = meta::at(pod, &["spec", "terminationGracePeriodSeconds"]);
        seconds.and_then(Value::as_i64).unwrap_or(0)
    };
    let unscheduled = meta::text(pod, &["spec", "nodeName"]).is_empty();
    let ended = matches!(
        meta::text(pod, &["status", "phase"]),
        "Succeeded" | "Failed"
    );
    if unscheduled || ended {
        return 0;
    }
    match asked.unwrap_or_else(of_spec) {
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

/// Defaults and validation of a new pod.
pub(crate) fn prepare_create(pod: &mut Value) -> Vec<Cause> {
    let causes = check_spec(pod);
    if !causes.is_empty() {
        return causes;
    }
    default_spec(pod);
    let qos = qos_class(pod);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos});
    if pod["spec"].get("schedulingGates").is_some() {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": null,
        }]);
    }
    Vec::new()
}

/// Fields of the spec that admission plugins set: who creates a pod without them does not own them.
pub(crate) const ADMITTED: &[&[&str]] = &[
    &["spec", "preemptionPolicy"],
    &["spec", "priority"],
    &["spec", "tolerations"],
];

/// Defaults of a changed pod, before the change is checked.
pub(crate) fn settle(pod: &mut Value) {
    default_spec(pod);
    print_times(pod, &["lastProbeTime", "lastTransitionTime"]);
}

/// Conditions always have their time fields, also null.
pub(super) fn print_times(object: &mut Value, fields: &[&str]) {
    let conditions = object
        .get_mut("status")
        .and_then(|s| s.get_mut("conditions"))
        .and_then(Value::as_array_mut);
    for condition in conditions
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        for field in fields {
            default(condition, field, Value::Null);
        }
    }
}

fn check_spec(pod: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = meta::at(pod, &["spec", "containers"]);
    let Some(containers) = containers
        .and_then(Value::as_array)
        .filter(|c| !c.is_empty())
    else {
        return vec![Cause::required("spec.containers", "")];
    };
    check_volumes(pod, &mut causes);
    let mut names: Vec<&str> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if meta::text(container, &[field]).is_empty() {
                let path = format!("spec.containers[{index}].{field}");
                causes.push(Cause::required(&path, ""));
            }
        }
        let name = meta::text(container, &["name"]);
        check_name(
            name,
            &format!("spec.containers[{index}].name"),
            &mut names,
            &mut causes,
        );
        check_mounts(
            pod,
            container,
            &format!("spec.containers[{index}]"),
            &mut causes,
        );
        check_resources(container, &format!("spec.containers[{index}]"), &mut causes);
    }
    let init = meta::at(pod, &["spec", "initContainers"]).and_then(Value::as_array);
    for (index, container) in init.into_iter().flatten().enumerate() {
        check_resources(
            container,
            &format!("spec.initContainers[{index}]"),
            &mut causes,
        );
    }
    let policy = meta::text(pod, &["spec", "restartPolicy"]);
    if !policy.is_empty() && !matches!(policy, "Always" | "OnFailure" | "Never") {
        causes.push(Cause::not_supported(
            "spec.restartPolicy",
            policy,
            &["Always", "OnFailure", "Never"],
        ));
    }
    let seconds = meta::at(pod, &["spec", "terminationGracePeriodSeconds"]);
    if seconds.is_some_and(|s| !s.is_i64()) {
        causes.push(Cause::invalid(
            "spec.terminationGracePeriodSeconds",
            &seconds.map(ToString::to_string).unwrap_or_default(),
            "must be an integer",
        ));
    }
    causes
}

/// A name in a list: a DNS label, and unique.
fn check_name<'a>(name: &'a str, path: &str, names: &mut Vec<&'a str>, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        return;
    }
    if let Some(why) = names::label_name(name) {
        causes.push(Cause::invalid(path, &format!("{name:?}"), why));
    } else if names.contains(&name) {
        causes.push(Cause {
            reason: "FieldValueDuplicate".into(),
            message: format!("Duplicate value: {name:?}"),
            field: path.into(),
        });
    }
    names.push(name);
}

fn volumes(pod: &Value) -> &[Value] {
    let volumes = meta::at(pod, &["spec", "volumes"]).and_then(Value::as_array);
    volumes.map_or(&[], Vec::as_slice)
}

fn check_volumes(pod: &Value, causes: &mut Vec<Cause>) {
    let mut names: Vec<&str> = Vec::new();
    for (index, volume) in volumes(pod).iter().enumerate() {
        let name = meta::text(volume, &["name"]);
        let path = format!("spec.volumes[{index}].name");
        if name.is_empty() {
            causes.push(Cause::required(&path, ""));
        }
        check_name(name, &path, &mut names, causes);
    }
}

fn check_mounts(pod: &Value, container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mounts = container.get("volumeMounts").and_then(Value::as_array);
    for (index, mount) in mounts.into_iter().flatten().enumerate() {
        let name = meta::text(mount, &["name"]);
        if !volumes(pod)
            .iter()
            .any(|v| meta::text(v, &["name"]) == name)
        {
            causes.push(Cause {
                reason: "FieldValueNotFound".into(),
                message: format!("Not found: {name:?}"),
                field: format!("{path}.volumeMounts[{index}].name"),
            });
        }
    }
}

/// Requests and limits: not negative, and no request above its limit.
fn check_resources(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let of = |field| meta::at(container, &["resources", field]).and_then(Value::as_object);
    let amount = |value: &Value| value.as_str().and_then(parse_milli);
    let (limits, requests) = (of("limits"), of("requests"));
    let mut check = |field: &str, name: &str, value: &Value| {
        if amount(value).is_some_and(|amount| amount < 0) {
            let path = format!("{path}.resources.{field}[{name}]");
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(&path, &value.to_string(), why));
        }
    };
    for (name, limit) in limits.into_iter().flatten() {
        check("limits", name, limit);
    }
    // A limit is also the request, if there is none.
    let implied = limits.into_iter().flatten();
    let implied = implied.filter(|(name, _)| requests.is_none_or(|r| !r.contains_key(*name)));
    for (name, request) in requests.into_iter().flatten().chain(implied) {
        check("requests", name, request);
    }
    for (name, request) in requests.into_iter().flatten() {
        let Some(limit) = limits.and_then(|limits| limits.get(name)) else {
            continue;
        };
        if amount(request) > amount(limit) {
            let shown = limit.as_str().unwrap_or_default();
            let why = format!("must be less than or equal to {name} limit of {shown}");
            let path = format!("{path}.resources.requests");
            causes.push(Cause::invalid(&path, &request.to_string(), &why));
        }
    }
}

fn default(map: &mut Map<String, Value>, field: &str, value: Value) {
    if !map.contains_key(field) {
        map.insert(field.to_owned(), value);
    }
}

fn default_spec(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    default(spec, "schedulerName", json!("default-scheduler"));
    default(spec, "terminationGracePeriodSeconds", json!(DEFAULT_GRACE));
    let grace = spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    if grace.is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    let no_gates = spec
        .get("schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty);
    if no_gates {
        spec.remove("schedulingGates");
    }
    default(spec, "securityContext", json!({}));
    default(spec, "enableServiceLinks", json!(true));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    default(spec, "priority", json!(0));
    // The service account is also set under its deprecated name.
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", account);
    }
    if let Some(tolerations) = spec
        .entry("tolerations")
        .or_insert_with(|| json!([]))
        .as_array_mut()
    {
        for key in [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ] {
            let tolerated = |t: &Value| {
                let any = t.get("key").is_none() && meta::text(t, &["operator"]) == "Exists";
                any || t.get("key").is_some_and(|k| k == key)
            };
            if !tolerations.iter().any(tolerated) {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300
                }));
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            let image = container
                .get("image")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let floating = image.ends_with(":latest") || !image.contains([':', '@']);
            let policy = if floating { "Always" } else { "IfNotPresent" };
            default(container, "imagePullPolicy", json!(policy));
            default(container, "resources", json!({}));
            default(
                container,
                "terminationMessagePath",
                json!("/dev/termination-log"),
            );
            default(container, "terminationMessagePolicy", json!("File"));
            default_ports(container);
            default_requests(container);
        }
    }
}

fn default_ports(container: &mut Map<String, Value>) {
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        default(port, "protocol", json!("TCP"));
    }
}

/// A limit is also the request, if there is none.
fn default_requests(container: &mut Map<String, Value>) {
    let Some(resources) = container
        .get_mut("resources")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn qos_class(pod: &Value) -> &'static str {
    let containers = meta::at(pod, &["spec", "containers"]).and_then(Value::as_array);
    let mut any = false;
    let mut guaranteed = true;
    for container in containers.into_iter().flatten() {
        for resource in ["cpu", "memory"] {
            let limit = meta::at(container, &["resources", "limits", resource]);
            let request = meta::at(container, &["resources", "requests", resource]);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

const IMMUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// All errors in changing a pod's spec.
pub(crate) fn check_update(old: &Value, new: &Value) -> Vec<Cause> {
    let (had, has) = (&old["spec"], new.get("spec").unwrap_or(&Value::Null));
    if had == has {
        return Vec::new();
    }
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec.get(list).and_then(Value::as_array).map_or(0, Vec::len);
        if count(had) != count(has) {
            let why = "pod updates may not add or remove containers";
            return vec![Cause::forbidden(&format!("spec.{list}"), why)];
        }
    }
    let mut causes = Vec::new();
    let mut allowed = has.clone();
    let gated = had.get("schedulingGates").is_some();
    if let (Some(allowed), Some(had)) = (allowed.as_object_mut(), had.as_object()) {
        let mut free = vec!["activeDeadlineSeconds", "tolerations"];
        if gated {
            free.extend(["schedulingGates", "nodeSelector", "affinity"]);
        }
        if had
            .get("terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
            .is_some_and(|s| s < 0)
        {
            free.push("terminationGracePeriodSeconds");
        }
        for field in free {
            match had.get(field) {
                Some(value) => allowed.insert(field.to_owned(), value.clone()),
                None => allowed.remove(field),
            };
        }
        for list in ["containers", "initContainers"] {
            copy_images(allowed.get_mut(list), had.get(list));
        }
    }
    if allowed != *had {
        causes.push(Cause::forbidden("spec", IMMUTABLE));
    }
    causes.extend(check_deadline(had, has));
    if !tolerations_kept(had, has) {
        let why = "existing tolerations can not be modified except its tolerationSeconds";
        causes.push(Cause::forbidden("spec.tolerations", why));
    }
    causes
}

/// An active deadline can be set and shortened.
fn check_deadline(had: &Value, has: &Value) -> Option<Cause> {
    let field = "activeDeadlineSeconds";
    let before = had.get(field).and_then(Value::as_i64)?;
    let path = "spec.activeDeadlineSeconds";
    match has.get(field).and_then(Value::as_i64) {
        None => {
            let why = "must not update from a positive integer to nil value";
            Some(Cause::invalid(path, "null", why))
        }
        Some(now) if now > before => {
            let why = "must be less than or equal to previous value";
            Some(Cause::invalid(path, &now.to_string(), why))
        }
        Some(_) => None,
    }
}

fn copy_images(new: Option<&mut Value>, old: Option<&Value>) {
    let new = new.and_then(Value::as_array_mut).into_iter().flatten();
    let old = old.and_then(Value::as_array).into_iter().flatten();
    for (new, old) in new.zip(old) {
        if let (Some(new), Some(image)) = (new.as_object_mut(), old.get("image")) {
            new.insert("image".to_owned(), image.clone());
        }
    }
}

fn tolerations_kept(old: &Value, new: &Value) -> bool {
    let list = |spec: &Value| -> Vec<Value> {
        let list = spec.get("tolerations").and_then(Value::as_array).cloned();
        let mut list = list.unwrap_or_default();
        for toleration in list.iter_mut().filter_map(Value::as_object_mut) {
            toleration.remove("tolerationSeconds");
        }
        list
    };
    let new = list(new);
    list(old).iter().all(|toleration| new.contains(toleration))
}
