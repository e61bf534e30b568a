//! Encodes objects, lists and errors in the form that a client requested.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::body::SandboxBody;
use super::negotiate::{Form, unfit};
use super::table;
use crate::cluster::ListPage;
use crate::error::ApiError;
use crate::kinds::ResourceInfo;
use crate::meta;
use crate::wire::{Partial, encode};

pub(crate) type Answer = Response<SandboxBody>;

const JSON: &str = "application/json";

/// Encodes the objects of one request.
pub(crate) struct Writer<'a> {
    pub(crate) info: &'a ResourceInfo,
    pub(crate) version: &'a str,
    pub(crate) form: Form,
    /// The part of the object in table rows: `None`, `Metadata` or `Object`.
    pub(crate) include_object: &'a str,
    pub(crate) now: jiff::Timestamp,
}

/// Any bytes.
pub(crate) fn raw(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(SandboxBody::whole(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Any JSON.
pub(crate) fn json(status: u16, value: &Value) -> Answer {
    raw(status, JSON, encode(value))
}

/// The plain 404 page of an unknown path.
pub(crate) fn page_not_found() -> Answer {
    raw(404, "text/plain; charset=utf-8", "404 page not found\n")
}

/// Adds `Warning` headers to the response of an accepted request.
pub(crate) fn warn<'a>(
    mut answer: Answer,
    warnings: impl IntoIterator<Item = &'a String>,
) -> Answer {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            answer.headers_mut().append(WARNING, value);
        }
    }
    answer
}

/// An error as a `Status`.
pub(crate) fn refuse(error: &ApiError) -> Answer {
    if error.is_not_served() {
        return page_not_found();
    }
    let mut response = json(error.code, &error.to_status());
    let seconds = error.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if seconds > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

impl Writer<'_> {
    /// One object.
    pub(crate) fn object(&self, status: u16, object: &Value) -> Answer {
        match self.encode_one(object) {
            Ok(bytes) => raw(status, JSON, bytes),
            Err(error) => refuse(&error),
        }
    }

    /// One object in the requested form; also used by watches.
    pub(crate) fn encode_one(&self, object: &Value) -> Result<Vec<u8>, ApiError> {
        // A Status is never converted.
        if object.get("kind").is_some_and(|k| k == "Status") && self.info.kind != "Status" {
            return Ok(encode(object));
        }
        match self.form {
            Form::Object => Ok(encode(object)),
            Form::Metadata => Ok(encode(&Partial(object))),
            Form::MetadataList => Err(unfit(
                "PartialObjectMetadataList",
                &self.info.kind,
                "not a list",
            )),
            Form::Table(meta_version) => {
                let table = self.table(
                    meta_version,
                    std::slice::from_ref(&object),
                    &json!({
                        "resourceVersion": meta::field(object, "resourceVersion"),
                    }),
                );
                Ok(encode(&table))
            }
        }
    }

    /// A page of a list.
    pub(crate) fn list(&self, page: &ListPage) -> Answer {
        let mut metadata = json!({"resourceVersion": page.resource_version.to_string()});
        // Lists of custom resources print the token even when it is empty.
        if !page.continue_token.is_empty() || (self.info.custom && self.form == Form::Object) {
            metadata["continue"] = json!(page.continue_token);
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let bytes = match self.form {
            Form::Object => encode(&ListBody {
                kind: &self.info.list_kind,
                api_version: &self.info.api_version(self.version),
                metadata: &metadata,
                items: &page.items,
                shape: if self.info.custom {
                    Shape::Whole
                } else {
                    Shape::Untyped
                },
            }),
            Form::MetadataList => encode(&ListBody {
                kind: "PartialObjectMetadataList",
                api_version: "meta.k8s.io/v1",
                metadata: &metadata,
                items: &page.items,
                shape: Shape::Metadata,
            }),
            Form::Metadata => {
                return refuse(&unfit(
                    "PartialObjectMetadata",
                    &self.info.list_kind,
                    "a list",
                ));
            }
            Form::Table(meta_version) => {
                let items: Vec<&Value> = page.items.iter().map(|o| &**o).collect();
                encode(&self.table(meta_version, &items, &metadata))
            }
        };
        raw(200, JSON, bytes)
    }

    fn table(&self, meta_version: &str, objects: &[&Value], metadata: &Value) -> Value {
        let mut table = table::table(
            self.info,
            self.version,
            objects,
            self.include_object,
            self.now,
        );
        table["apiVersion"] = json!(format!("meta.k8s.io/{meta_version}"));
        table["metadata"] = metadata.clone();
        table
    }
}

#[derive(Clone, Copy)]
enum Shape {
    Whole,
    /// Items of built-in kinds omit apiVersion and kind.
    Untyped,
    Metadata,
}

struct ListBody<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: &'a Value,
    items: &'a [Arc<Value>],
    shape: Shape,
}

impl Serialize for ListBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("kind", self.kind)?;
        map.serialize_entry("apiVersion", self.api_version)?;
        map.serialize_entry("metadata", self.metadata)?;
        map.serialize_entry(
            "items",
            &Items {
                items: self.items,
                shape: self.shape,
            },
        )?;
        map.end()
    }
}

struct Items<'a> {
    items: &'a [Arc<Value>],
    shape: Shape,
}

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // An empty list of metadata is null, as a real server writes it.
        if self.items.is_empty() && matches!(self.shape, Shape::Metadata) {
            return serializer.serialize_none();
        }
        let mut seq = serializer.serialize_seq(Some(self.items.len()))?;
        for item in self.items {
            match self.shape {
                Shape::Whole => seq.serialize_element(&**item)?,
                Shape::Untyped => seq.serialize_element(&Untyped(item))?,
                Shape::Metadata => seq.serialize_element(&Partial(item))?,
            }
        }
        seq.end()
    }
}

struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(k, _)| !matches!(k.as_str(), "kind" | "apiVersion")))
    }
}
