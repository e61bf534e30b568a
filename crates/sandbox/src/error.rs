//! The error of every call, and its `Status` body.

use std::fmt;

use serde_json::{Map, Value, json};

/// The machine-readable reason of an [`ApiError`], as in `metav1.StatusReason`. Part of
/// [`ApiError`](crate::ApiError), which a method of [`Cluster`](crate::Cluster) returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No reason given; the wire carries an empty string.
    Unknown,
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 409 on a create whose name is taken.
    AlreadyExists,
    /// 409 on a version or uid that does not match.
    Conflict,
    /// 410 of a watch or list whose version has been compacted.
    Expired,
    /// 410 of anything else.
    Gone,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 422.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 500.
    InternalError,
    /// 503.
    ServiceUnavailable,
    /// 504.
    Timeout,
}

impl Reason {
    /// The reason of this text; [`Reason::Unknown`] of others.
    #[cfg_attr(
        not(feature = "cel"),
        expect(dead_code, reason = "only webhooks send texts")
    )]
    pub(crate) fn of(text: &str) -> Self {
        let all = [
            Reason::BadRequest,
            Reason::Unauthorized,
            Reason::Forbidden,
            Reason::NotFound,
            Reason::MethodNotAllowed,
            Reason::NotAcceptable,
            Reason::AlreadyExists,
            Reason::Conflict,
            Reason::Expired,
            Reason::Gone,
            Reason::RequestEntityTooLarge,
            Reason::UnsupportedMediaType,
            Reason::Invalid,
            Reason::TooManyRequests,
            Reason::InternalError,
            Reason::ServiceUnavailable,
            Reason::Timeout,
        ];
        let mut all = all.into_iter();
        let found = all.find(|reason| reason.as_str() == text);
        found.unwrap_or(Reason::Unknown)
    }

    /// The reason as in the body.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Unknown => "",
            Reason::BadRequest => "BadRequest",
            Reason::Unauthorized => "Unauthorized",
            Reason::Forbidden => "Forbidden",
            Reason::NotFound => "NotFound",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Expired => "Expired",
            Reason::Gone => "Gone",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::Invalid => "Invalid",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::InternalError => "InternalError",
            Reason::ServiceUnavailable => "ServiceUnavailable",
            Reason::Timeout => "Timeout",
        }
    }
}

/// One entry of `status.details.causes`. Part of [`Details`](crate::Details), which a method of
/// [`Cluster`](crate::Cluster) returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `NamespaceTerminating`, and so on.
    pub reason: String,
    /// For humans.
    pub message: String,
    /// JSON path of the field; empty when the cause names none.
    pub field: String,
}

impl Cause {
    /// An invalid value of a field.
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        Cause {
            reason: "FieldValueInvalid".into(),
            message: format!("Invalid value: {value}: {why}"),
            field: field.into(),
        }
    }

    /// A missing field.
    pub fn required(field: &str, why: &str) -> Self {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        Cause {
            reason: "FieldValueRequired".into(),
            message,
            field: field.into(),
        }
    }

    /// A field that must not have this value.
    pub fn forbidden(field: &str, why: &str) -> Self {
        Cause {
            reason: "FieldValueForbidden".into(),
            message: format!("Forbidden: {why}"),
            field: field.into(),
        }
    }

    /// A value outside a closed list.
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        Cause {
            reason: "FieldValueNotSupported".into(),
            message: format!(
                "Unsupported value: \"{value}\": supported values: {}",
                supported.join(", ")
            ),
            field: field.into(),
        }
    }
}

/// `status.details`. Part of [`ApiError`](crate::ApiError), which a method of
/// [`Cluster`](crate::Cluster) returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object, empty when the error names none.
    pub name: String,
    /// API group.
    pub group: String,
    /// Plural resource, or the kind for 422.
    pub kind: String,
    /// UID, rarely set.
    pub uid: String,
    /// The single errors.
    pub causes: Vec<Cause>,
    /// Seconds a client should wait; zero means unset.
    pub retry_after_seconds: u64,
}

/// A refused request: what kube-apiserver answers as a `Status` with `status: Failure`. Returned
/// by the methods of [`Cluster`](crate::Cluster).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: Reason,
    /// For humans; kube-apiserver's text.
    pub message: String,
    /// The object of the error. `None` leaves `details` out of the body.
    pub details: Option<Box<Details>>,
    /// `metadata.continue` of the body: where to continue an expired list.
    pub continue_token: Option<Box<str>>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            self.code,
            self.reason.as_str(),
            self.message
        )
    }
}

impl std::error::Error for ApiError {}

/// `resource.group` as messages print it.
pub(crate) fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

/// A name in Go's quotes.
fn go_quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        ApiError {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    pub(crate) fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    /// Sets `details.retryAfterSeconds`, which the HTTP service also sends as `Retry-After`.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 404 that names the object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let what = qualified(resource, group);
        Self::new(
            404,
            Reason::NotFound,
            format!("{what} {} not found", go_quoted(name)),
        )
        .about(group, resource, name)
    }

    /// 404 of a kind that is not served; over HTTP a plain "404 page not found".
    pub fn not_served() -> Self {
        Self::new(
            404,
            Reason::NotFound,
            "the server could not find the requested resource",
        )
        .about("", "", "")
    }

    /// True for an error of [`ApiError::not_served`].
    pub fn is_not_served(&self) -> bool {
        self.code == 404 && self.details.as_ref().is_some_and(|d| d.name.is_empty())
    }

    /// 409 on create.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let what = qualified(resource, group);
        Self::new(
            409,
            Reason::AlreadyExists,
            format!("{what} \"{name}\" already exists"),
        )
        .about(group, resource, name)
    }

    /// 409 on a precondition.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(resource, group);
        let message = format!("Operation cannot be fulfilled on {what} \"{name}\": {why}");
        Self::new(409, Reason::Conflict, message).about(group, resource, name)
    }

    /// 409 of an object that has been replaced by another of the same name.
    pub(crate) fn wrong_uid(
        group: &str,
        resource: &str,
        name: &str,
        path: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        Self::conflict(group, resource, name, &why)
    }

    /// 403.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let what = qualified(resource, group);
        let message = match name {
            "" => format!("{what} is forbidden: {why}"),
            name => format!("{what} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, Reason::Forbidden, message).about(group, resource, name)
    }

    /// 422 with its causes.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let what = qualified(kind, group);
        let mut lines: Vec<String> = Vec::new();
        for cause in &causes {
            let line = format!("{}: {}", cause.field, cause.message);
            // Each cause is listed, but each message is printed once.
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let why = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        Self::new(
            422,
            Reason::Invalid,
            format!("{what} \"{name}\" is invalid: {why}"),
        )
        .about(group, kind, name)
        .with_causes(causes)
    }

    /// 405.
    pub fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::new(405, Reason::MethodNotAllowed, message).about("", "", "")
    }

    /// 405 of a verb that a custom resource's endpoint does not have.
    pub(crate) fn verb_not_supported(verb: &str, group: &str, resource: &str) -> Self {
        let what = qualified(resource, group);
        let message = format!("{verb} is not supported on resources of kind {what:?}");
        Self::new(405, Reason::MethodNotAllowed, message).about(group, resource, "")
    }

    /// 410 of a compacted version.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, Reason::InternalError, message)
    }

    /// The body on the wire.
    pub fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if self.reason != Reason::Unknown {
            status["reason"] = json!(self.reason.as_str());
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_json();
        }
        status
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = Map::new();
        let texts = [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                out.insert(key.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            out.insert(
                "causes".into(),
                self.causes.iter().map(Cause::to_json).collect(),
            );
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".into(), json!(self.retry_after_seconds));
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                out.insert(key.into(), json!(text));
            }
        }
        Value::Object(out)
    }
}
