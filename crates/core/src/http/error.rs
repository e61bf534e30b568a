use std::time::Duration;

use super::class::ErrorClass;
use super::status::ApiError;
use crate::duration;
use crate::object::{ObjectKey, Resource};

/// Why a request failed. Returned by [`Request::send`](crate::http::Request::send); the [module's
/// example](crate::http) handles some.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The server answered with an error status.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// No complete response in time. A write may have been applied.
    #[error("no complete response within {}", duration::format(*.0))]
    Timeout(Duration),
    /// The connection could not be made or broke. A write may have been applied.
    #[error("the connection failed")]
    Connection(#[source] Box<kube::Error>),
    /// The body of the response broke off. A write has been applied.
    #[error("the response was interrupted")]
    Interrupted(#[source] tower::BoxError),
    /// The body of the response is larger than the request allows.
    #[error("the response is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The response is complete but invalid. A write has been applied.
    #[error("invalid response: {0}")]
    Decode(String),
    /// The server accepted a write and changed nothing: a mutating admission webhook has undone it.
    #[error(
        "the API server accepted the change, but the object is as before: a mutating admission webhook may undo it"
    )]
    Unchanged,
    /// Another replica is the leader, or may be: see [`Leadership`](crate::election::Leadership). A
    /// write that was under way may have been applied.
    #[error("this replica is not the leader and may not write")]
    NotLeading,
    /// The request could not be built: HTTP does not allow its path or a header. Nothing was sent.
    #[error("cannot build the request: {0}")]
    Build(String),
}

impl RequestError {
    /// The class of this error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Api(error) => error.class(),
            Self::Timeout(_) => ErrorClass::Timeout,
            Self::NotLeading => ErrorClass::Unavailable,
            Self::Connection(_) | Self::Interrupted(_) => ErrorClass::Connection,
            Self::TooLarge { .. } | Self::Decode(_) => ErrorClass::Decode,
            Self::Unchanged => ErrorClass::Invalid,
            Self::Build(_) => ErrorClass::Other,
        }
    }

    /// The message with the root cause: `the connection failed: Connection refused (os error 111)`.
    /// The errors of libraries in between are left out: they name only their own types.
    pub fn message(&self) -> String {
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause.and_then(std::error::Error::source) {
            cause = Some(next);
        }
        match cause {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    /// The API server's error, if the server answered with one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server says that this object does not exist.
    pub fn is_gone(&self, kind: &Resource, key: &ObjectKey) -> bool {
        self.api()
            .is_some_and(|api| api.is_not_found_naming(kind, key))
    }

    /// Whether the server says that `metadata.uid` is immutable. The version that the write named
    /// was right and the UID was not, so another object has the name by now.
    pub fn names_uid(&self) -> bool {
        const FIELD: &str = "metadata.uid";
        self.api().is_some_and(|api| {
            let mut causes = api.details.iter().flat_map(|details| &details.causes);
            causes.any(|cause| cause.field == FIELD) || api.message.contains(FIELD)
        })
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.api().and_then(|error| error.retry_after)
    }
}

impl From<ApiError> for RequestError {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_message_has_the_root_cause_and_no_library_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("ServiceError: client error (Connect)")]
        struct Library(#[source] io::Error);
        let refused = io::Error::other("connection refused");
        let error = RequestError::Interrupted(Box::new(Library(refused)));
        assert_eq!(
            error.message(),
            "the response was interrupted: connection refused"
        );
        let timeout = RequestError::Timeout(Duration::from_secs(3));
        assert_eq!(timeout.message(), "no complete response within 3s");
    }
}
