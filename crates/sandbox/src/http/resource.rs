//! Requests for objects.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::negotiate::{Form, accept, content_type};
use super::respond::{self, Answer, Writer};
use super::route::{ResourceRequest, verb};
use super::{Call, Server, options, read, review, scale, watch};
use crate::cluster::{
    DeleteOptions, Effect, Gvr, ListOptions, Patch, Subresource, VersionMatch, WriteOptions,
    Written, shape,
};
use crate::error::{ApiError, Cause, Reason};
use crate::kinds::{ResourceInfo, protobuf, types};
use crate::meta;
use crate::recorder::Verb;

pub(crate) fn serve(server: &Arc<Server>, call: &Call, request: &ResourceRequest) -> Answer {
    if let Some(answer) = review::serve(call, request) {
        return answer;
    }
    answer(server, call, request).unwrap_or_else(|error| match error.is_not_served() {
        true => not_served(server, &request.gvr),
        false => respond::refuse(&error),
    })
}

/// The media types of bodies. Custom kinds have no protobuf.
const READABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

fn method_not_allowed() -> ApiError {
    let message = "the server does not allow this method on the requested resource";
    ApiError::method_not_allowed(message)
}

fn check_include(text: &str) -> Result<(), ApiError> {
    if matches!(text, "" | "None" | "Metadata" | "Object") {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "Unable to convert to Table as requested: includeObject: Invalid value: {text:?}: must be 'Metadata', 'Object', 'None', or empty"
    )))
}

/// A group of the server's own answers a Status, any other path a plain page.
fn not_served(server: &Server, gvr: &Gvr) -> Answer {
    let own = |info: &Arc<ResourceInfo>| !info.custom && info.group == gvr.group;
    if server.cluster.resources().iter().any(own) {
        return respond::json(404, &ApiError::not_served().to_status());
    }
    respond::page_not_found()
}

fn answer(
    server: &Arc<Server>,
    call: &Call,
    request: &ResourceRequest,
) -> Result<Answer, ApiError> {
    let Some(info) = server.cluster.resource(&request.gvr) else {
        return Ok(not_served(server, &request.gvr));
    };
    let verb = verb(&call.parts.method, request, &call.query).ok_or_else(method_not_allowed)?;
    let form = accept(&call.parts.headers)?;
    if matches!(form, Form::Table(_)) {
        check_include(call.query.get("includeObject"))?;
    }
    let one = Request {
        server,
        call,
        request,
        info: &info,
    };
    let writer = Writer {
        info: &info,
        version: &request.gvr.version,
        form,
        include_object: call.query.get("includeObject"),
        now: server.cluster.clock().now(),
    };
    match request.subresource.as_str() {
        "" | "status" | "finalize" => one.main(verb, &writer),
        "log" if one.is_pod() && verb == Verb::Get => {
            server
                .cluster
                .get(&request.gvr, one.namespace(), &request.name)?;
            Ok(respond::raw(200, "text/plain", ""))
        }
        "binding" if one.is_pod() && verb == Verb::Create => one.bind(),
        "eviction" if one.is_pod() && verb == Verb::Create => one.evict(),
        "log" | "binding" | "eviction" if one.is_pod() => Err(method_not_allowed()),
        "scale" if scale::serves(&info) => one.scale(verb),
        _ if info.custom => Err(ApiError::not_found(
            &info.group,
            &info.resource,
            &request.name,
        )),
        _ => Err(ApiError::not_served()),
    }
}

struct Request<'a> {
    server: &'a Arc<Server>,
    call: &'a Call,
    request: &'a ResourceRequest,
    info: &'a ResourceInfo,
}

impl Request<'_> {
    fn namespace(&self) -> Option<&str> {
        Some(self.request.namespace.as_str()).filter(|ns| !ns.is_empty())
    }

    fn is_pod(&self) -> bool {
        self.info.is(&Gvr::PODS)
    }

    fn subresource(&self) -> Result<Subresource, ApiError> {
        let subresource = match self.request.subresource.as_str() {
            "status" => Subresource::Status,
            "finalize" => Subresource::Finalize,
            _ => Subresource::None,
        };
        if self.info.serves(&self.request.gvr.version, subresource) {
            Ok(subresource)
        } else if self.info.custom {
            let (group, resource) = (&self.info.group, &self.info.resource);
            Err(ApiError::not_found(group, resource, &self.request.name))
        } else {
            Err(ApiError::not_served())
        }
    }

    fn main(&self, verb: Verb, writer: &Writer<'_>) -> Result<Answer, ApiError> {
        let subresource = self.subresource()?;
        let plain = subresource == Subresource::None;
        let request = self.request;
        // A collection over all namespaces can only be read.
        let everywhere = self.info.namespaced() && request.namespace.is_empty();
        if everywhere && matches!(verb, Verb::Create | Verb::DeleteCollection) {
            return Err(method_not_allowed());
        }
        if verb == Verb::DeleteCollection && self.info.is(&Gvr::NAMESPACES) {
            return Err(method_not_allowed());
        }
        match verb {
            Verb::Get => {
                let at = self.call.decision.stale;
                let asked = crate::cluster::parse_version(self.call.query.get("resourceVersion"))?;
                let newest = self.server.cluster.version();
                if asked > newest {
                    return Err(crate::cluster::too_large(asked, newest));
                }
                let found = self.server.cluster.get_as_of(
                    &request.gvr,
                    self.namespace(),
                    &request.name,
                    at,
                )?;
                Ok(writer.object(200, &found))
            }
            Verb::List => {
                let options = self.list_options()?;
                if !self.call.query.get("sendInitialEvents").is_empty() {
                    return Err(initial_events_of_a_list(&options));
                }
                let page = self.server.cluster.list_as_of(
                    &request.gvr,
                    self.namespace(),
                    &options,
                    self.call.decision.stale,
                )?;
                Ok(writer.list(&page))
            }
            Verb::Watch => watch::serve(self.server, self.call, request, self.info, writer.form),
            Verb::Create if plain && request.name.is_empty() => self.create(writer),
            Verb::Update => self.update(subresource, writer),
            Verb::Patch => self.patch(subresource, writer),
            Verb::Delete if plain => self.delete(writer),
            Verb::DeleteCollection if plain => self.delete_collection(writer),
            _ => Err(method_not_allowed()),
        }
    }

    fn list_options(&self) -> Result<ListOptions, ApiError> {
        let query = &self.call.query;
        let limit = query.get("limit");
        let limit: i64 = match limit {
            "" => 0,
            text => text.parse().map_err(|_| {
                ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            })?,
        };
        let version_match = match query.get("resourceVersionMatch") {
            "" => None,
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            other => {
                return Err(crate::cluster::list_options_invalid(Cause::not_supported(
                    "resourceVersionMatch",
                    other,
                    &["Exact", "NotOlderThan", ""],
                )));
            }
        };
        Ok(ListOptions {
            label_selector: query.get("labelSelector").to_owned(),
            field_selector: query.get("fieldSelector").to_owned(),
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.get("continue").to_owned(),
            resource_version: query.get("resourceVersion").to_owned(),
            version_match,
        })
    }

    /// Reads the body into the form that the kind's type has.
    fn body(&self, options: &WriteOptions) -> Result<(Value, Vec<String>), ApiError> {
        let mut parsed = self.parsed()?;
        let Some(name) = self.info.type_name(&self.request.gvr.version) else {
            return Ok((
                parsed.value,
                self.judge(Vec::new(), parsed.duplicates, options)?,
            ));
        };
        // A body of another kind is refused as such, not for its fields.
        let kind = meta::text(&parsed.value, &["kind"]);
        if !kind.is_empty() && kind != self.info.kind {
            return Ok((parsed.value, Vec::new()));
        }
        let mut unknown = types::decode(name, &mut parsed.value).map_err(|why| {
            ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}",
                kind = self.info.kind,
                version = self.request.gvr.version
            ))
        })?;
        read::in_order(&self.call.body, &mut unknown);
        let warnings = self.judge(unknown, parsed.duplicates, options)?;
        Ok((parsed.value, warnings))
    }

    fn judge(
        &self,
        unknown: Vec<String>,
        duplicates: Vec<String>,
        options: &WriteOptions,
    ) -> Result<Vec<String>, ApiError> {
        let mut complaints = shape::unknown(unknown);
        complaints.extend(
            duplicates
                .iter()
                .map(|path| format!("duplicate field {path:?}")),
        );
        shape::judge(self.info, &self.request.gvr, complaints, options)
    }

    /// The body of a subresource with a type of its own.
    fn plain_body(&self) -> Result<Value, ApiError> {
        self.parsed().map(|parsed| parsed.value)
    }

    fn parsed(&self) -> Result<read::Parsed, ApiError> {
        let media = content_type(&self.call.parts.headers);
        let (parsed, format) = match media.as_str() {
            "" | "application/json" => (read::json(&self.call.body), "json"),
            "application/yaml" => (read::yaml(&self.call.body), "yaml"),
            protobuf::MEDIA if !self.info.custom => return self.unpacked(),
            _ => return Err(unsupported_media(READABLE)),
        };
        let mut parsed = parsed.map_err(|why| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; {format} parse error: {why}",
                self.info.kind
            ))
        })?;
        // Go reads null as an empty object.
        if parsed.value.is_null() {
            parsed.value = json!({});
        }
        if !parsed.value.is_object() {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; {format} parse error: json: cannot unmarshal value into Go value of type struct",
                self.info.kind
            )));
        }
        Ok(parsed)
    }

    /// Reads a body in protobuf.
    fn unpacked(&self) -> Result<read::Parsed, ApiError> {
        let version = self.request.gvr.api_version();
        let (version, kind) = match self.request.subresource.as_str() {
            "binding" => ("v1", "Binding"),
            "eviction" => ("policy/v1", "Eviction"),
            "scale" => ("autoscaling/v1", "Scale"),
            _ => (version.as_str(), self.info.kind.as_str()),
        };
        let value = protobuf::read(&self.call.body, version, kind).map_err(|why| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {why}"
            ))
        })?;
        Ok(read::Parsed {
            value,
            duplicates: Vec::new(),
        })
    }

    fn write_options(&self) -> Result<WriteOptions, ApiError> {
        options::of_write(self.call)
    }

    fn create(&self, writer: &Writer<'_>) -> Result<Answer, ApiError> {
        let options = self.write_options()?;
        let (body, warnings) = self.body(&options)?;
        let written = self.server.cluster.create_written(
            &self.call.actor,
            &self.request.gvr,
            self.namespace(),
            body,
            &options,
        )?;
        let answer = writer.object(201, &written.object);
        Ok(respond::warn(
            answer,
            warnings.iter().chain(&written.warnings),
        ))
    }

    fn update(&self, subresource: Subresource, writer: &Writer<'_>) -> Result<Answer, ApiError> {
        let options = self.write_options()?;
        let (body, warnings) = self.body(&options)?;
        let written = self.server.cluster.update_written(
            &self.call.actor,
            &self.request.gvr,
            self.namespace(),
            &self.request.name,
            body,
            subresource,
            &options,
        )?;
        let answer = writer.object(code(&written), &written.object);
        Ok(respond::warn(
            answer,
            warnings.iter().chain(&written.warnings),
        ))
    }

    fn patch(&self, subresource: Subresource, writer: &Writer<'_>) -> Result<Answer, ApiError> {
        let written = self.server.cluster.patch_written(
            &self.call.actor,
            &self.request.gvr,
            self.namespace(),
            &self.request.name,
            self.patch_body()?,
            subresource,
            &self.write_options()?,
        )?;
        let answer = writer.object(code(&written), &written.object);
        Ok(respond::warn(answer, &written.warnings))
    }

    fn patch_body(&self) -> Result<Patch, ApiError> {
        let make = match content_type(&self.call.parts.headers).as_str() {
            "application/merge-patch+json" => Patch::Merge,
            "application/json-patch+json" => Patch::Json,
            "application/strategic-merge-patch+json" if self.info.custom => {
                return Err(crate::cluster::unsupported_strategic());
            }
            "application/strategic-merge-patch+json" => Patch::Strategic,
            "application/apply-patch+yaml" => {
                return Err(unsupported_media(
                    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
                ));
            }
            _ => {
                let message = "415: Unsupported Media Type";
                let error = ApiError::new(415, Reason::UnsupportedMediaType, message);
                return Err(error.with_causes(Vec::new()));
            }
        };
        let body = serde_json::from_slice(&self.call.body)
            .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
        Ok(make(body))
    }

    fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let media = content_type(&self.call.parts.headers);
        if self.call.body.is_empty() {
            return options::from_query(self.call);
        }
        if media == protobuf::MEDIA {
            let body = protobuf::read(&self.call.body, "v1", "DeleteOptions");
            let body = body.map_err(|why| ApiError::bad_request(why.to_string()))?;
            return options::of_delete(&body);
        }
        if !matches!(media.as_str(), "" | "application/json" | "application/yaml") {
            return Err(unsupported_media(READABLE));
        }
        let parsed = if media == "application/yaml" {
            read::yaml(&self.call.body)
        } else {
            read::json(&self.call.body)
        };
        let parsed = parsed.map_err(|e| {
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}"))
        })?;
        match parsed.value {
            Value::Null => options::from_query(self.call),
            value @ Value::Object(_) => options::of_delete(&value),
            _ => Err(ApiError::bad_request(
                "couldn't get version/kind; json parse error: json: cannot unmarshal value into Go value of type struct",
            )),
        }
    }

    fn delete(&self, writer: &Writer<'_>) -> Result<Answer, ApiError> {
        use crate::kinds::Traits;
        let options = self.delete_options()?;
        let request = self.request;
        let written = self.server.cluster.delete_written(
            &self.call.actor,
            &request.gvr,
            self.namespace(),
            &request.name,
            &options,
        )?;
        if written.effect == Effect::Removed && !self.info.has(Traits::RETURNS_DELETED) {
            let status = json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": success_details(self.info, &written.object),
            });
            return Ok(respond::warn(
                writer.object(200, &status),
                &written.warnings,
            ));
        }
        Ok(respond::warn(
            writer.object(200, &written.object),
            &written.warnings,
        ))
    }

    fn delete_collection(&self, writer: &Writer<'_>) -> Result<Answer, ApiError> {
        let options = self.delete_options()?;
        let items = self.server.cluster.delete_collection(
            &self.call.actor,
            &self.request.gvr,
            self.namespace(),
            &options,
            &self.list_options()?,
        )?;
        let page = crate::cluster::ListPage {
            items,
            resource_version: self.server.cluster.version(),
            continue_token: String::new(),
            remaining: None,
        };
        Ok(writer.list(&page))
    }

    fn bind(&self) -> Result<Answer, ApiError> {
        let body = self.plain_body()?;
        self.check_same_name(&body, "Binding")?;
        let kind = meta::text(&body, &["target", "kind"]);
        let node = meta::text(&body, &["target", "name"]);
        // The server fails here where it should refuse.
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

    fn scale(&self, verb: Verb) -> Result<Answer, ApiError> {
        let (gvr, name) = (&self.request.gvr, &self.request.name);
        let found = self.server.cluster.get(gvr, self.namespace(), name)?;
        let mut wanted = scale::of(&found);
        match verb {
            Verb::Get => return Ok(respond::json(200, &wanted)),
            Verb::Update => wanted = self.plain_body()?,
            Verb::Patch => {
                // What the patch does not name is no precondition.
                let metadata = json!({"name": name});
                wanted["metadata"] = metadata;
                crate::cluster::patch_any(&mut wanted, &self.patch_body()?)?;
            }
            _ => return Err(method_not_allowed()),
        }
        let written = self.server.cluster.patch_written(
            &self.call.actor,
            gvr,
            self.namespace(),
            name,
            Patch::Merge(scale::change(name, &wanted)?),
            Subresource::None,
            &self.write_options()?,
        )?;
        Ok(respond::json(200, &scale::of(&written.object)))
    }

    fn check_same_name(&self, body: &Value, kind: &str) -> Result<(), ApiError> {
        let name = meta::name(body);
        if name.is_empty() || name == self.request.name {
            return Ok(());
        }
        let why = format!("name in URL does not match name in {kind} object");
        Err(ApiError::bad_request(why))
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

    fn evict(&self) -> Result<Answer, ApiError> {
        let body = self.plain_body()?;
        self.check_same_name(&body, "Eviction")?;
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

fn initial_events_of_a_list(options: &ListOptions) -> ApiError {
    let continues = !options.continue_token.is_empty();
    let version = &options.resource_version;
    let wrong = crate::cluster::check_match(options.version_match, version, continues);
    let why = "sendInitialEvents is forbidden for list";
    let mut causes: Vec<Cause> = wrong.into_iter().collect();
    causes.push(Cause::forbidden("sendInitialEvents", why));
    ApiError::invalid("meta.k8s.io", "ListOptions", "", causes)
}

fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}

fn success_details(info: &ResourceInfo, object: &Value) -> Value {
    let mut details = json!({
        "name": meta::name(object),
        "kind": info.resource,
        "uid": meta::uid(object),
    });
    if !info.group.is_empty() {
        details["group"] = json!(info.group);
    }
    details
}

fn code(written: &Written) -> u16 {
    if written.effect == Effect::Created {
        201
    } else {
        200
    }
}

fn unsupported_media(accepted: &str) -> ApiError {
    ApiError::new(
        415,
        Reason::UnsupportedMediaType,
        format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        ),
    )
}

/// True for methods that a path without objects answers.
pub(crate) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
