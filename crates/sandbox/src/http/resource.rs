//! Requests for objects.

mod arguments;
mod subresources;

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::negotiate::{Form, accept};
use super::respond::{self, Answer, Writer};
use super::route::{ResourceRequest, access_to, verb};
use super::{Call, Server, review, watch};
use crate::access::{self, Authorization};
use crate::address::{Gvr, Subresource};
use crate::cluster::{Effect, ListOptions, Patch, WriteOptions, Written};
use crate::error::{ApiError, Cause};
use crate::kinds::{ResourceInfo, Traits};
use crate::meta;
use crate::recorder::Verb;

pub(crate) fn serve(server: &Arc<Server>, call: &Call, request: &ResourceRequest) -> Answer {
    if let Some(answer) = review::serve(server, call, request) {
        return answer;
    }
    answer(server, call, request).unwrap_or_else(|error| match error.is_not_served() {
        true => not_served(server, &request.gvr),
        false => respond::refuse(&error),
    })
}

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

/// An unknown resource of one of the server's own groups gets a Status, any other path a plain page.
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
        "token" if info.is(&Gvr::SERVICEACCOUNTS) && verb == Verb::Create => one.token(),
        "log" | "binding" | "eviction" if one.is_pod() => Err(method_not_allowed()),
        "scale" if info.serves(&request.gvr.version, Subresource::Scale) => one.scale(verb),
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
        // A collection over all namespaces is read-only.
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

    /// The options of an update or patch, which may create the object if `creates`: the user needs the permission for that as
    /// well.
    fn options_of_change(&self, creates: bool) -> Result<WriteOptions, ApiError> {
        let (server, call) = (self.server, self.call);
        let mut options = self.write_options()?;
        let is_checked = server.authorization != Authorization::AllowAll || call.impersonates;
        if creates && is_checked {
            let access = access_to(&call.parts, self.request, &call.query).with_verb(Verb::Create);
            options.create_forbidden = access::check(&server.cluster, &call.user, &access).err();
        }
        Ok(options)
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
        let options = self.options_of_change(self.info.has(Traits::CREATE_ON_UPDATE))?;
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
        let patch = self.patch_body()?;
        let options = self.options_of_change(matches!(patch, Patch::Apply(_)))?;
        let written = self.server.cluster.patch_written(
            &self.call.actor,
            &self.request.gvr,
            self.namespace(),
            &self.request.name,
            patch,
            subresource,
            &options,
        )?;
        let answer = writer.object(code(&written), &written.object);
        Ok(respond::warn(answer, &written.warnings))
    }

    fn delete(&self, writer: &Writer<'_>) -> Result<Answer, ApiError> {
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

/// True for methods that are allowed on a path without objects.
pub(crate) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
