//! Responses that a fault gives instead of the server.

use std::time::Duration;

use bytes::Bytes;

use super::Target;
use crate::error::{ApiError, Cause, Reason};

/// A response that a fault gives instead of the server. The [crate's example](crate) has a
/// conflict.
#[derive(Debug, Clone)]
pub struct Answer(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Error(ApiError),
    /// With the request's own resource and name.
    Conflict,
    Denied(u16, String),
    Raw {
        status: u16,
        content_type: &'static str,
        body: Bytes,
    },
}

/// The rendered response.
pub(crate) enum Rendered {
    Error(ApiError),
    Raw {
        status: u16,
        content_type: &'static str,
        body: Bytes,
    },
}

impl Answer {
    /// Any error.
    pub fn error(error: ApiError) -> Self {
        Answer(Kind::Error(error))
    }

    /// 409, as after a concurrent write.
    pub fn conflict() -> Self {
        Answer(Kind::Conflict)
    }

    /// 410 Expired.
    pub fn gone() -> Self {
        Self::error(ApiError::expired("too old resource version"))
    }

    /// 422, as by an admission policy with this message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Answer(Kind::Denied(422, message.into()))
    }

    /// 403, as by RBAC or a webhook with this message.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Answer(Kind::Denied(403, message.into()))
    }

    /// 429 with `Retry-After`, in whole seconds, at least one.
    pub fn too_many_requests(retry_after: Duration) -> Self {
        let message =
            "the server has received too many requests and has asked us to try again later";
        let error = ApiError::new(429, Reason::TooManyRequests, message);
        Self::error(error.retry_after(retry_after.as_secs().max(1)))
    }

    /// 429 without `Retry-After`.
    pub fn too_many_requests_now() -> Self {
        Self::error(ApiError::new(
            429,
            Reason::TooManyRequests,
            "Too many requests",
        ))
    }

    /// 500.
    pub fn internal_error() -> Self {
        Self::error(ApiError::internal(
            "Internal error occurred: injected fault",
        ))
    }

    /// 503 without `Retry-After`.
    pub fn service_unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::error(ApiError::new(503, Reason::ServiceUnavailable, message))
    }

    /// 503 with `Retry-After`, in whole seconds, at least one.
    pub fn service_unavailable_for(retry_after: Duration) -> Self {
        let message = "the server is currently unable to handle the request";
        let error = ApiError::new(503, Reason::ServiceUnavailable, message);
        Self::error(error.retry_after(retry_after.as_secs().max(1)))
    }

    /// 504.
    pub fn timeout() -> Self {
        let message = "request did not complete within the allotted timeout";
        Self::error(ApiError::new(504, Reason::Timeout, message))
    }

    /// The plain-text 404 of an unknown path.
    pub fn page_not_found() -> Self {
        Self::raw(404, "text/plain; charset=utf-8", "404 page not found\n")
    }

    /// Any bytes, also responses that a server should never give.
    pub fn raw(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Answer(Kind::Raw {
            status,
            content_type,
            body: body.into(),
        })
    }

    pub(crate) fn render(self, target: &Target) -> Rendered {
        let (group, resource, name) = (&target.group, &target.resource, &target.name);
        match self.0 {
            Kind::Error(error) => Rendered::Error(error),
            Kind::Conflict => Rendered::Error(ApiError::conflict(
                group,
                resource,
                name,
                "the object has been modified; please apply your changes to the latest version and try again",
            )),
            Kind::Denied(403, message) => {
                Rendered::Error(ApiError::forbidden(group, resource, name, &message))
            }
            Kind::Denied(_, message) => {
                let cause = Cause {
                    reason: String::new(),
                    message,
                    field: String::new(),
                };
                Rendered::Error(ApiError::invalid(group, resource, name, vec![cause]))
            }
            Kind::Raw {
                status,
                content_type,
                body,
            } => Rendered::Raw {
                status,
                content_type,
                body,
            },
        }
    }
}
