//! Decodes and checks the body and the options of a request.

use serde_json::{Value, json};

use super::super::negotiate::content_type;
use super::super::{options, read};
use super::Request;
use crate::cluster::{DeleteOptions, ListOptions, Patch, VersionMatch, WriteOptions, shape};
use crate::error::{ApiError, Cause, Reason};
use crate::kinds::{protobuf, types};
use crate::meta;

/// The media types of bodies. Custom kinds have no protobuf.
const READABLE: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Request<'_> {
    pub(super) fn list_options(&self) -> Result<ListOptions, ApiError> {
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

    /// Decodes the body into the form of the kind's type.
    pub(super) fn body(&self, options: &WriteOptions) -> Result<(Value, Vec<String>), ApiError> {
        let mut parsed = self.parsed()?;
        let Some(name) = self.info.type_name(&self.request.gvr.version) else {
            return Ok((
                parsed.value,
                self.judge(Vec::new(), parsed.duplicates, options)?,
            ));
        };
        // A body of another kind is refused because of its kind, not because of its fields.
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

    pub(super) fn judge(
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

    /// The body of a subresource with its own type.
    pub(super) fn plain_body(&self) -> Result<Value, ApiError> {
        self.parsed().map(|parsed| parsed.value)
    }

    pub(super) fn parsed(&self) -> Result<read::Parsed, ApiError> {
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
        // Go decodes null as an empty object.
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

    /// Decodes a protobuf body.
    pub(super) fn unpacked(&self) -> Result<read::Parsed, ApiError> {
        let version = self.request.gvr.api_version();
        let (version, kind) = match self.request.subresource.as_str() {
            "binding" => ("v1", "Binding"),
            "eviction" => ("policy/v1", "Eviction"),
            "scale" => ("autoscaling/v1", "Scale"),
            "token" => ("authentication.k8s.io/v1", "TokenRequest"),
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

    pub(super) fn write_options(&self) -> Result<WriteOptions, ApiError> {
        options::of_write(self.call)
    }

    pub(super) fn patch_body(&self) -> Result<Patch, ApiError> {
        let make = match content_type(&self.call.parts.headers).as_str() {
            "application/merge-patch+json" => Patch::Merge,
            "application/json-patch+json" => Patch::Json,
            "application/strategic-merge-patch+json" if self.info.custom => {
                return Err(crate::cluster::unsupported_strategic());
            }
            "application/strategic-merge-patch+json" => Patch::Strategic,
            options::APPLY => return self.applied_body(),
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

    /// The configuration of a server-side apply: YAML, and so JSON too.
    fn applied_body(&self) -> Result<Patch, ApiError> {
        let why = |why: &str| ApiError::bad_request(format!("error decoding YAML: {why}"));
        let parsed = read::yaml(&self.call.body).map_err(|error| why(&error))?;
        match parsed.value {
            Value::Null => Ok(Patch::Apply(json!({}))),
            config @ Value::Object(_) => Ok(Patch::Apply(config)),
            _ => Err(why(
                "json: cannot unmarshal value into Go value of type map[string]interface {}",
            )),
        }
    }

    pub(super) fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
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
