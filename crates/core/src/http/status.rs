use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::class::ErrorClass;
use crate::object::{ObjectKey, Resource};
use crate::slim::json::nullable;
use crate::slim::protobuf::MAGIC;

/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pause of so many seconds that a server asks for.
pub(super) fn bounded_pause(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_PAUSE)
}

/// An error response of the API server: the HTTP status, and the `Status` object if the server
/// sent one. A variant of [`RequestError`](crate::http::RequestError) contains it; the [module's
/// example](crate::http) shows how to handle one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status code, or the code of the `Status` inside a watch stream.
    pub code: u16,
    /// `reason` of the `Status`, such as `NotFound`; empty without a `Status`.
    pub reason: String,
    /// `message` of the `Status`, or the beginning of a body that is not a `Status`.
    pub message: String,
    /// `details` of the `Status`.
    pub details: Option<Details>,
    /// How long the server asks to wait: the `Retry-After` header, else
    /// `details.retryAfterSeconds`; at most a minute, whatever the server or a proxy asks for (L3).
    pub retry_after: Option<Duration>,
    /// Whether the server sent a `Status`. The response for a path that is not served is plain
    /// text.
    pub has_status: bool,
}

/// `details` of a `Status`. Part of [`ApiError`](crate::http::ApiError); see the
/// [example](crate::http) for how errors are handled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// Name of the object that the error is about.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// API group of that object; empty for the core group.
    #[serde(deserialize_with = "nullable")]
    pub group: String,
    /// Its plural (which the API server sends), or its kind.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// Its UID.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// One entry per invalid field or other cause.
    #[serde(deserialize_with = "nullable")]
    pub causes: Vec<Cause>,
    /// How long to wait, in seconds; 0 if the server sent none.
    #[serde(deserialize_with = "nullable")]
    pub retry_after_seconds: u32,
}

/// One cause of a `Status`. A validation error has one per field, in
/// [`Details`](crate::http::Details); see the [example](crate::http) for how errors are handled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// A machine-readable reason, such as `FieldValueInvalid`.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// The message.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// The field, such as `metadata.uid`.
    #[serde(deserialize_with = "nullable")]
    pub field: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawStatus {
    #[serde(deserialize_with = "nullable")]
    pub(super) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) reason: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) message: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) code: u16,
    #[serde(deserialize_with = "nullable")]
    pub(super) details: Option<Details>,
}

/// How many characters of a plain-text body an error quotes.
const MESSAGE_CHARACTERS: usize = 256;

impl ApiError {
    /// An error with only a status code.
    pub fn from_code(code: u16) -> Self {
        Self {
            code,
            reason: String::new(),
            message: String::new(),
            details: None,
            retry_after: None,
            has_status: false,
        }
    }

    /// Parses the body of an HTTP error: a `Status`, or anything else as text.
    pub fn from_answer(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let mut error = Self::from_status(body).unwrap_or_else(|| {
            let text = String::from_utf8_lossy(body);
            let message = text.trim().chars().take(MESSAGE_CHARACTERS).collect();
            Self {
                message,
                ..Self::from_code(code)
            }
        });
        // The HTTP status takes precedence over the code of the `Status`.
        error.code = code;
        error.retry_after = retry_after.or(error.retry_after);
        error
    }

    /// Parses a `Status` in JSON or protobuf; `None` if the body is something else. Inside a watch
    /// stream there is no HTTP status.
    pub fn from_status(body: &[u8]) -> Option<Self> {
        let raw = if body.starts_with(&MAGIC) {
            RawStatus::from_protobuf(body).ok()?
        } else {
            serde_json::from_slice(body).ok()?
        };
        if raw.kind != "Status" {
            return None;
        }
        let seconds = raw
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds);
        Some(Self {
            code: raw.code,
            reason: raw.reason,
            message: raw.message,
            details: raw.details,
            retry_after: (seconds > 0).then(|| bounded_pause(u64::from(seconds))),
            has_status: true,
        })
    }

    /// The class of this error.
    pub fn class(&self) -> ErrorClass {
        match self.code {
            400 | 422 => ErrorClass::Invalid,
            401 => ErrorClass::Unauthorized,
            403 => ErrorClass::Forbidden,
            404 if self.names_an_object() => ErrorClass::NotFound,
            404 => ErrorClass::NotServed,
            406 | 415 => ErrorClass::Unsupported,
            409 if self.reason == "AlreadyExists" => ErrorClass::AlreadyExists,
            409 => ErrorClass::Conflict,
            410 => ErrorClass::Gone,
            429 => ErrorClass::TooManyRequests,
            408 | 504 => ErrorClass::Timeout,
            502 | 503 => ErrorClass::Unavailable,
            500..=599 => ErrorClass::Server,
            _ if self.reason == "Expired" || self.reason == "Gone" => ErrorClass::Gone,
            _ => ErrorClass::Other,
        }
    }

    /// Whether this is a 404 whose `Status` says NotFound and names exactly this object: the only
    /// 404 that is evidence of absence. The response for a kind that is not served is plain text,
    /// one for a missing namespace names the namespace, and one of a proxy names nothing.
    pub fn is_not_found_naming(&self, resource: &Resource, key: &ObjectKey) -> bool {
        let Some(details) = &self.details else {
            return false;
        };
        let same_kind = details.kind.is_empty()
            || details.kind == *resource.plural
            || details.kind.eq_ignore_ascii_case(&resource.kind);
        self.code == 404
            && self.reason == "NotFound"
            && details.name == key.name()
            && details.group == *resource.group
            && same_kind
    }

    /// Whether one of the causes has this `reason`.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details
            .as_ref()
            .is_some_and(|d| d.causes.iter().any(|c| c.reason == reason))
    }

    fn names_an_object(&self) -> bool {
        self.reason == "NotFound" && self.details.as_ref().is_some_and(|d| !d.name.is_empty())
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}
