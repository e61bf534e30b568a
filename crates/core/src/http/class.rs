//! Classes of errors.

/// Groups errors by how a caller handles them.
/// [`RequestError::class`](crate::http::RequestError::class) returns it; the [module's
/// example](crate::http) branches on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorClass {
    /// 404 without a `Status` that names an object: the kind (or path) is not served.
    NotServed,
    /// 404 whose `Status` names an object. It is evidence only for the object that it names: see
    /// [`ApiError::is_not_found_naming`](super::ApiError::is_not_found_naming).
    NotFound,
    /// 409: the object has another version or UID.
    Conflict,
    /// 409 on a create: the name is taken.
    AlreadyExists,
    /// 410: the resourceVersion or continue token is too old.
    Gone,
    /// 429.
    TooManyRequests,
    /// 502, 503: no API server can answer; while one starts, also for kinds that it serves. Or this
    /// replica may not write because another replica is the leader.
    Unavailable,
    /// 401.
    Unauthorized,
    /// 403: RBAC, a policy or a webhook denied the request.
    Forbidden,
    /// 400, 422: the server refuses the content of the request.
    Invalid,
    /// 406, 415: the server does not support the format.
    Unsupported,
    /// 408, 504, or the request's own deadline.
    Timeout,
    /// The connection could not be made or broke.
    Connection,
    /// Any other 5xx.
    Server,
    /// The response is too large or invalid.
    Decode,
    /// Anything else, including a request that cannot be built.
    Other,
}

impl ErrorClass {
    /// Whether the same request can succeed later without any change to it or to the cluster.
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

    /// The class as a metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
