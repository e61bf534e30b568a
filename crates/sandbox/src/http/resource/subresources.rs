//! Subresources with their own type: `binding`, `eviction`, `scale` and `token`.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::options;
use super::super::respond::{self, Answer};
use super::{Request, method_not_allowed};
use crate::address::Subresource;
use crate::clock::rfc3339;
use crate::cluster::{DeleteOptions, Patch};
use crate::error::{ApiError, Cause, Reason};
use crate::kinds::{scale, types};
use crate::meta;
use crate::recorder::Verb;

const UNCONVERTIBLE: &str = "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1";

impl Request<'_> {
    pub(super) fn bind(&self) -> Result<Answer, ApiError> {
        let body = self.body_of("Binding", "core", &["v1"])?;
        let kind = meta::text(&body, &["target", "kind"]);
        let node = meta::text(&body, &["target", "name"]);
        // The real server fails here instead of refusing.
        let refuse = |cause: &Cause| {
            let why = format!("{}: {}", cause.field, cause.message);
            Err(ApiError::new(500, Reason::Unknown, why))
        };
        if !matches!(kind, "" | "Node") {
            return refuse(&Cause::not_supported(
                "target.kind",
                kind,
                &["Node", "<empty>"],
            ));
        }
        if node.is_empty() {
            return refuse(&Cause::required("target.name", ""));
        }
        self.check_same_uid(meta::uid(&body))?;
        self.server.cluster.bind(
            &self.call.actor,
            &self.request.namespace,
            &self.request.name,
            node,
            &self.write_options()?,
        )?;
        Ok(respond::json(201, &success(201)))
    }

    pub(super) fn scale(&self, verb: Verb) -> Result<Answer, ApiError> {
        let (gvr, name) = (&self.request.gvr, &self.request.name);
        let found = self.server.cluster.get(gvr, self.namespace(), name)?;
        let (info, version) = (self.info, gvr.version.as_ref());
        let mut wanted = scale::of(info, version, &found);
        let unset = scale::unset(info, version, &found);
        let patch = match verb {
            Verb::Get => match unset {
                None => return Ok(respond::json(200, &wanted)),
                Some(path) => {
                    let why = format!("the spec replicas field {path:?} does not exist");
                    let cause = Cause {
                        reason: String::new(),
                        message: why.clone(),
                        field: String::new(),
                    };
                    let error = ApiError::internal(format!("Internal error occurred: {why}"));
                    return Err(error.with_causes(vec![cause]));
                }
            },
            Verb::Update => Patch::Merge(scale::change(info, gvr, name, &self.plain_body()?)?),
            Verb::Patch => match self.patch_body()? {
                // The real server fails to convert a custom resource to a `Scale` here.
                Patch::Apply(_) if info.custom => {
                    return Err(ApiError::new(500, Reason::Unknown, UNCONVERTIBLE));
                }
                Patch::Apply(config) => Patch::Apply(scale::applied(info, gvr, &config)?),
                patch => {
                    // Only fields in the patch are preconditions.
                    wanted["metadata"] = json!({"name": name});
                    crate::cluster::patch_any(&mut wanted, &patch)?;
                    if let Some(path) = unset
                        && meta::at(&wanted, &["spec", "replicas"]).is_none()
                    {
                        let why = format!("the spec replicas field {path:?} cannot be empty");
                        return Err(ApiError::bad_request(why));
                    }
                    Patch::Merge(scale::change(info, gvr, name, &wanted)?)
                }
            },
            verb if info.custom => {
                let (verb, group, resource) = (verb.as_str(), &info.group, &info.resource);
                return Err(ApiError::verb_not_supported(verb, group, resource));
            }
            _ => return Err(method_not_allowed()),
        };
        let written = self.server.cluster.patch_written(
            &self.call.actor,
            gvr,
            self.namespace(),
            name,
            patch,
            Subresource::Scale,
            &self.write_options()?,
        )?;
        let answer = respond::json(200, &scale::of(info, version, &written.object));
        Ok(respond::warn(answer, &written.warnings))
    }

    /// A token that the sandbox accepts as the account's; bound to a node, it names the node.
    pub(super) fn token(&self) -> Result<Answer, ApiError> {
        let (request, cluster) = (self.request, &self.server.cluster);
        let mut body = self.plain_body()?;
        cluster.get(&request.gvr, self.namespace(), &request.name)?;
        let seconds = meta::at(&body, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
        let seconds = seconds.unwrap_or(3600);
        if seconds < 600 {
            let why = "may not specify a duration less than 10 minutes";
            let cause = Cause::invalid("spec.expirationSeconds", &seconds.to_string(), why);
            let kind = ("authentication.k8s.io", "TokenRequest");
            return Err(ApiError::invalid(
                kind.0,
                kind.1,
                meta::name(&body),
                vec![cause],
            ));
        }
        let bound = match meta::text(&body, &["spec", "boundObjectRef", "kind"]) {
            "Node" => format!(
                "@{}",
                meta::text(&body, &["spec", "boundObjectRef", "name"])
            ),
            _ => String::new(),
        };
        let (namespace, name) = (&request.namespace, &request.name);
        let ends = cluster.clock().now() + SignedDuration::from_secs(seconds);
        body["apiVersion"] = json!("authentication.k8s.io/v1");
        body["kind"] = json!("TokenRequest");
        body["spec"]["expirationSeconds"] = json!(seconds);
        body["status"] = json!({
            "token": format!("user:system:serviceaccount:{namespace}:{name}{bound}"),
            "expirationTimestamp": rfc3339(ends),
        });
        Ok(respond::json(201, &body))
    }

    /// The body of a subresource with its own type: it must be of that type, and name the object.
    fn body_of(&self, kind: &str, package: &str, versions: &[&str]) -> Result<Value, ApiError> {
        let body = self.plain_body()?;
        check_type(&body, kind, package, versions)?;
        let namespace = meta::field(&body, "namespace");
        if !namespace.is_empty() && namespace != self.request.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if meta::name(&body) != self.request.name {
            let why = format!("name in URL does not match name in {kind} object");
            return Err(ApiError::bad_request(why));
        }
        Ok(body)
    }

    fn check_same_uid(&self, uid: &str) -> Result<(), ApiError> {
        let (gvr, name) = (&self.request.gvr, &self.request.name);
        let found = self.server.cluster.get(gvr, self.namespace(), name)?;
        if uid.is_empty() || uid == meta::uid(&found) {
            return Ok(());
        }
        let path = self.info.storage_path(&self.request.namespace, name);
        Err(ApiError::wrong_uid(
            "",
            "pods",
            name,
            &path,
            uid,
            meta::uid(&found),
        ))
    }

    pub(super) fn evict(&self) -> Result<Answer, ApiError> {
        let body = self.body_of("Eviction", "policy", &["policy/v1", "policy/v1beta1"])?;
        let mut options = match body.get("deleteOptions") {
            None | Some(Value::Null) => DeleteOptions::default(),
            Some(options) => options::of_delete(options)?,
        };
        options.dry_run |= self.write_options()?.dry_run;
        self.server.cluster.evict(
            &self.call.actor,
            &self.request.namespace,
            &self.request.name,
            &options,
        )?;
        Ok(respond::json(201, &success(201)))
    }
}

/// 400 of a body of another type. What the body leaves out is the type that is expected.
fn check_type(body: &Value, kind: &str, package: &str, versions: &[&str]) -> Result<(), ApiError> {
    let given = |field: &str, default: &str| match meta::text(body, &[field]) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    let default = versions.first().copied().unwrap_or_default();
    let (sent, api_version) = (given("kind", kind), given("apiVersion", default));
    if sent == kind && versions.contains(&api_version.as_str()) {
        return Ok(());
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let why = match types::of_kind(group, version, &sent) {
        Some(_) => {
            format!("converting ({version}.{sent}) to ({package}.{kind}): unknown conversion")
        }
        None => format!(
            "no kind {sent:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        ),
    };
    Err(ApiError::bad_request(format!(
        "{sent} in version {version:?} cannot be handled as a {kind}: {why}"
    )))
}

fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
