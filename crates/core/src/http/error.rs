use std::time::Duration;

use super::ApiError;
use crate::object::{ObjectKey, Resource};

/// Why a request did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The server answered with an error status.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// No complete answer in time. A write may have been applied all the same.
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    /// The connection could not be made or broke. A write may have been applied all the same.
    #[error("the connection failed")]
    Connection(#[source] Box<kube::Error>),
    /// The body of the answer broke off. A write has been applied.
    #[error("the answer broke off")]
    Interrupted(#[source] tower::BoxError),
    /// The body of the answer is larger than the request allows.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// What was allowed, in bytes.
        limit: usize,
    },
    /// The answer was complete and makes no sense. A write has been applied.
    #[error("the answer cannot be read: {0}")]
    Decode(String),
    /// Another replica leads, or may lead: see [`Tenure`](crate::election::Tenure). A write that was
    /// under way may have been applied.
    #[error("this replica does not lead and may not write")]
    NotLeading,
    /// The request could not be built: a path or header that HTTP does not allow. Nothing was sent.
    #[error("the request cannot be built: {0}")]
    Build(String),
}

/// What a caller does about an error; the same for everybody who asks the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// 404 without a `Status` that names an object: the kind (or path) is not served.
    NotServed,
    /// 404 whose `Status` names an object. Evidence only for whom it names: see
    /// [`ApiError::is_not_found_naming`].
    NotFound,
    /// 409: the version or UID was another's.
    Conflict,
    /// 409 on a create: the name is taken.
    AlreadyExists,
    /// 410: the resourceVersion or continue token is too old.
    Gone,
    /// 429.
    TooManyRequests,
    /// 502, 503: nobody there to answer; during an API server's start also for kinds it has. Or we
    /// may not write for now, because another replica leads.
    Unavailable,
    /// 401.
    Unauthorized,
    /// 403: RBAC, a policy or a webhook says no.
    Forbidden,
    /// 400, 422: the server does not accept what was sent.
    Invalid,
    /// 406, 415: the server does not speak the format.
    Unsupported,
    /// 408, 504, or our own deadline.
    Timeout,
    /// No connection, or it broke.
    Connection,
    /// Any other 5xx.
    Server,
    /// The answer is too large or makes no sense.
    Decode,
    /// Anything else, a request that cannot be built included.
    Other,
}

impl ErrorClass {
    /// Whether the same request can succeed later without anybody changing anything.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::TooManyRequests
                | Self::Unavailable
                | Self::Timeout
                | Self::Connection
                | Self::Server
        )
    }

    /// As a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotServed => "not_served",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::AlreadyExists => "already_exists",
            Self::Gone => "gone",
            Self::TooManyRequests => "too_many_requests",
            Self::Unavailable => "unavailable",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Decode => "decode",
            Self::Other => "other",
        }
    }
}

impl RequestError {
    /// What a caller does about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Api(error) => error.class(),
            Self::Timeout(_) => ErrorClass::Timeout,
            Self::NotLeading => ErrorClass::Unavailable,
            Self::Connection(_) | Self::Interrupted(_) => ErrorClass::Connection,
            Self::TooLarge { .. } | Self::Decode(_) => ErrorClass::Decode,
            Self::Build(_) => ErrorClass::Other,
        }
    }

    /// In words, with the first cause: `the connection failed: Connection refused (os error 111)`. What libraries
    /// say in between names only their own parts.
    pub fn in_words(&self) -> String {
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause.and_then(std::error::Error::source) {
            cause = Some(next);
        }
        match cause {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    /// The server's own words, if it said any.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server says that this very object does not exist.
    pub fn is_gone(&self, kind: &Resource, key: &ObjectKey) -> bool {
        self.api()
            .is_some_and(|api| api.is_not_found_naming(kind, key))
    }

    /// Whether the server says that `metadata.uid` is immutable: the version that a write named was
    /// right, and the UID another's, so another object has the name by now.
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
    fn an_error_in_words_has_its_first_cause_and_none_of_a_library() {
        #[derive(Debug, thiserror::Error)]
        #[error("ServiceError: client error (Connect)")]
        struct Library(#[source] io::Error);
        let refused = io::Error::other("connection refused");
        let error = RequestError::Interrupted(Box::new(Library(refused)));
        assert_eq!(error.in_words(), "the answer broke off: connection refused");
        let timeout = RequestError::Timeout(Duration::from_secs(3));
        assert_eq!(timeout.in_words(), "no complete answer within 3s");
    }
}
