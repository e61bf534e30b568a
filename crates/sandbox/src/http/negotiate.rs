//! Content negotiation: the form of a response.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::error::{ApiError, Reason};

/// The form of a response. All are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object itself.
    Object,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
    /// `Table` of this meta version.
    Table(&'static str),
}

/// Parses `Accept`; the first supported form wins.
pub(crate) fn accept(headers: &HeaderMap) -> Result<Form, ApiError> {
    let mut ranges: Vec<(String, f32)> = Vec::new();
    for header in headers.get_all(ACCEPT) {
        let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
        ranges.extend(
            text.split(',')
                .filter(|r| !r.trim().is_empty())
                .map(|range| {
                    let quality = range.split(';').find_map(|p| p.trim().strip_prefix("q="));
                    let quality = quality.and_then(|q| q.parse().ok()).unwrap_or(1.0);
                    (range.trim().to_owned(), quality)
                }),
        );
    }
    if ranges.is_empty() {
        return Ok(Form::Object);
    }
    ranges.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some(form) = ranges.iter().find_map(|(range, _)| form(range)) {
        return Ok(form);
    }
    // The media type is known, the form is not.
    let json = |range: &str| form(range.split(';').next().unwrap_or_default()).is_some();
    if ranges.iter().any(|(range, _)| json(range)) {
        return Err(not_acceptable());
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {KNOWN}");
    Err(ApiError::new(406, Reason::NotAcceptable, message).with_causes(Vec::new()))
}

const KNOWN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

pub(crate) fn not_acceptable() -> ApiError {
    ApiError::new(
        406,
        Reason::NotAcceptable,
        format!("only the following media types are accepted: {KNOWN}"),
    )
}

/// 406 of a form that does not fit the response.
pub(crate) fn unfit(form: &str, kind: &str, what: &str) -> ApiError {
    ApiError::new(
        406,
        Reason::NotAcceptable,
        format!("you requested {form}, but the requested object is {what} (*core.{kind})"),
    )
}

fn form(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    if !matches!(media.as_str(), "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut kind, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => kind = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    if kind.is_empty() {
        return Some(Form::Object);
    }
    if group != "meta.k8s.io" {
        return None;
    }
    match (kind, version) {
        ("Table", "v1") => Some(Form::Table("v1")),
        ("Table", "v1beta1") => Some(Form::Table("v1beta1")),
        ("PartialObjectMetadata", "v1") => Some(Form::Metadata),
        ("PartialObjectMetadataList", "v1") => Some(Form::MetadataList),
        _ => None,
    }
}

/// The media type of a body, without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let media = value
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", Some(Form::Object))]
    #[case("application/json", Some(Form::Object))]
    #[case("*/*", Some(Form::Object))]
    #[case("application/vnd.kubernetes.protobuf", None)]
    #[case(
        "application/vnd.kubernetes.protobuf, application/json",
        Some(Form::Object)
    )]
    #[case(
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        Some(Form::Metadata)
    )]
    #[case(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        Some(Form::Table("v1"))
    )]
    #[case(
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json",
        Some(Form::Object)
    )]
    #[case(
        "application/json;q=0.1, application/json;as=Table;v=v1;g=meta.k8s.io",
        Some(Form::Table("v1"))
    )]
    #[case("text/html", None)]
    fn the_first_supported_form_wins(#[case] accepted: &str, #[case] wanted: Option<Form>) {
        let mut headers = HeaderMap::new();
        if !accepted.is_empty() {
            headers.insert(ACCEPT, HeaderValue::from_str(accepted).unwrap());
        }
        assert_eq!(accept(&headers).ok(), wanted);
    }
}
