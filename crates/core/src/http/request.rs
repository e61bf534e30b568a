use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::status::bounded_pause;
use super::{ApiError, RequestError};
use crate::client::Urgency;
use crate::object::path;

/// Default deadline of a call, including the body.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Default limit of a response, in bytes. The API server stores objects of up to 1.5 MB (etcd's
/// limit); their JSON may be a few times larger.
pub const DEFAULT_BODY_LIMIT: usize = 32 << 20;

/// Limit of an error body, in bytes; the rest is not read.
const ERROR_BODY_LIMIT: usize = 256 << 10;

/// How many characters of an invalid name an error quotes.
const SHOWN_CHARACTERS: usize = 64;

/// Accept header for JSON.
pub const JSON: &str = "application/json";

/// Accept header for an object's metadata only. A server that does not support that responds with
/// the whole object.
pub const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The same for a list.
pub const METADATA_ONLY_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// [`METADATA_ONLY`] in protobuf, if the server supports it: that costs the server less than JSON.
pub const METADATA_ONLY_AS_PROTOBUF: &str = concat!(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
);

/// The format of a PATCH body. An argument of [`Request::patch`](crate::http::Request::patch).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386: named fields are replaced, `null` removes a field.
    Merge,
    /// RFC 6902: a list of operations.
    Json,
    /// Kubernetes' strategic merge patch: merges lists by key; built-in kinds only.
    Strategic,
    /// Server-side apply; the body is JSON.
    Apply,
}

impl PatchKind {
    fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// One request, with its deadline and its limit of the response.
///
/// It can be sent any number of times. Paths come from [`Resource`](crate::object::Resource).
///
/// ```
/// use belayer_core::{PatchKind, Request};
///
/// let path = "/api/v1/namespaces/shop/configmaps/settings";
/// let patch = Request::patch(path, PatchKind::Merge, r#"{"data":{"seen":"true"}}"#);
/// assert_eq!(Request::get(path).path(), patch.path());
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    accept: Cow<'static, str>,
    content_type: Option<&'static str>,
    body: Bytes,
    timeout: Duration,
    body_limit: usize,
}

impl Request {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            accept: Cow::Borrowed(JSON),
            content_type: None,
            body: Bytes::new(),
            timeout: DEFAULT_TIMEOUT,
            body_limit: DEFAULT_BODY_LIMIT,
        }
    }

    fn with_body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.content_type = Some(content_type);
        self.body = body.into();
        self
    }

    /// Reads one object or one collection.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Reads a collection in pages of `limit` items; `continue_token` is the token of the previous
    /// page.
    pub fn list(path: impl Into<String>, limit: u32, continue_token: Option<&str>) -> Self {
        let request = Self::get(path).query("limit", limit.to_string());
        match continue_token {
            Some(token) => request.query("continue", token),
            None => request,
        }
    }

    /// Changes an object.
    pub fn patch(path: impl Into<String>, kind: PatchKind, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PATCH, path).with_body(kind.content_type(), body)
    }

    /// Creates an object; `path` is the collection's. The body is JSON.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path).with_body(JSON, body)
    }

    /// Replaces an object. The body is JSON.
    pub fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::PUT, path).with_body(JSON, body)
    }

    /// Deletes an object; the body is `DeleteOptions` as JSON, preconditions included.
    pub fn delete(path: impl Into<String>, options: impl Into<Bytes>) -> Self {
        Self::new(Method::DELETE, path).with_body(JSON, options)
    }

    /// Adds a query parameter; the value is escaped.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Sets the Accept header.
    #[must_use]
    pub fn accept(mut self, accept: impl Into<Cow<'static, str>>) -> Self {
        self.accept = accept.into();
        self
    }

    /// Sets the deadline of the whole call; for a stream, that of the response headers.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the limit of the response, in bytes.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// The HTTP method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The path, without the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Sends the request and reads the whole response before the deadline.
    ///
    /// # Errors
    ///
    /// Any response that is not a success, and every failure to send the request or to read the
    /// response.
    pub async fn send(&self, client: &Client) -> Result<Answer, RequestError> {
        self.send_as(Urgency::Other, client).await
    }

    /// The same with its urgency.
    pub(crate) async fn send_as(
        &self,
        urgency: Urgency,
        client: &Client,
    ) -> Result<Answer, RequestError> {
        // The span is created here and not in the client, because the client sends from a task of
        // its own that has no parent span.
        let span = tracing::debug_span!(
            "request",
            otel.name = self.method.as_str(),
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            otel.status_description = tracing::field::Empty,
            http.request.method = self.method.as_str(),
            http.response.status_code = tracing::field::Empty,
            url.path = self.path.as_str(),
        );
        let answer = self
            .exchange(urgency, client)
            .instrument(span.clone())
            .await;
        if !span.is_disabled() {
            record_result(&span, &answer);
        }
        answer
    }

    async fn exchange(&self, urgency: Urgency, client: &Client) -> Result<Answer, RequestError> {
        let exchange = async {
            let (head, body) = self.head(urgency, client).await?.into_parts();
            Ok(Answer {
                status: head.status,
                content_type: content_type(&head.headers),
                body: read_body(body, self.body_limit).await?,
            })
        };
        timeout(self.timeout, exchange)
            .await
            .map_err(|_| RequestError::Timeout(self.timeout))?
    }

    /// Sends the request and leaves the body to be read as a stream. The deadline applies to the
    /// response headers; the caller bounds how long the stream may be silent. It does not count in the
    /// [limit of requests in flight](crate::client::CONNECTIONS).
    ///
    /// # Errors
    ///
    /// As [`Request::send`].
    pub async fn open(&self, client: &Client) -> Result<AnswerStream, RequestError> {
        let head = timeout(self.timeout, self.head(Urgency::Stream, client)).await;
        let response = head.map_err(|_| RequestError::Timeout(self.timeout))??;
        let content_type = content_type(response.headers());
        Ok(AnswerStream {
            content_type,
            body: response.into_body(),
        })
    }

    /// Returns a successful response; reads the body of any other as an error.
    async fn head(
        &self,
        urgency: Urgency,
        client: &Client,
    ) -> Result<http::Response<Body>, RequestError> {
        let mut request = self.build()?;
        request.extensions_mut().insert(urgency);
        let sent = client.send(request).await;
        let response = sent.map_err(|error| RequestError::Connection(Box::new(error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        // The status code counts even if the body breaks off.
        let body = read_body(response.into_body(), ERROR_BODY_LIMIT)
            .await
            .unwrap_or_default();
        Err(ApiError::from_answer(status.as_u16(), retry_after, &body).into())
    }

    fn build(&self) -> Result<http::Request<Body>, RequestError> {
        // A name comes from data; it must not be able to address another path.
        if let Err(segment) = path::check(&self.path) {
            let shown: String = segment.chars().take(SHOWN_CHARACTERS).collect();
            return Err(RequestError::Build(format!(
                "invalid path segment {shown:?}: no object can have this name"
            )));
        }
        let mut uri = self.path.clone();
        if !self.query.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(&self.query);
            uri.push('?');
            uri.push_str(&query.finish());
        }
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(uri)
            .header(header::ACCEPT, &*self.accept);
        if let Some(content_type) = self.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request
            .body(Body::from(self.body.clone()))
            .map_err(|error| RequestError::Build(error.to_string()))
    }
}

/// Records the result of a request on its span.
fn record_result(span: &tracing::Span, answer: &Result<Answer, RequestError>) {
    let code = match answer {
        Ok(answer) => Some(answer.status.as_u16()),
        Err(error) => error.api().map(|api| api.code),
    };
    if let Some(code) = code {
        span.record("http.response.status_code", code);
    }
    if let Err(error) = answer {
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", error.to_string());
    }
}

/// A complete, successful response. Returned by [`Request::send`](crate::http::Request::send); the
/// [module's example](crate::http) reads its body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// 2xx.
    pub status: StatusCode,
    /// Content-Type as the server sent it; empty if it sent none. See [`media_type`].
    pub content_type: String,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// Parses the body as JSON.
    ///
    /// # Errors
    ///
    /// [`RequestError::Decode`] if the body is something else.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, RequestError> {
        serde_json::from_slice(&self.body).map_err(|error| RequestError::Decode(error.to_string()))
    }
}

/// A successful response whose body is still being received.
/// [`Request::open`](crate::http::Request::open) returns it in place of an
/// [`Answer`](crate::http::Answer); the request is made as in the [example](crate::http).
#[derive(Debug)]
pub struct AnswerStream {
    /// Content-Type as the server sent it; empty if it sent none. See [`media_type`].
    pub content_type: String,
    body: Body,
}

impl AnswerStream {
    /// The next piece of the body, of any size; `None` at its end. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`RequestError::Interrupted`] if the body breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, RequestError> {
        loop {
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| RequestError::Interrupted(error.into()))?;
            // Trailers are ignored.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// The media type of a Content-Type, without its parameters.
///
/// ```
/// use belayer_core::http::media_type;
///
/// assert_eq!(media_type("application/json; charset=utf-8"), "application/json");
/// ```
pub fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

/// Seconds only: the API server does not send dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(bounded_pause)
}

async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, RequestError> {
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| RequestError::Interrupted(error.into()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let have = first.as_ref().map_or(0, Bytes::len) + all.len();
        if have + data.len() > limit {
            return Err(RequestError::TooLarge { limit });
        }
        match first.take() {
            // Most bodies are one piece, which is returned without a copy.
            None if all.is_empty() => first = Some(data),
            None => all.extend_from_slice(&data),
            Some(start) => {
                all.reserve(start.len() + data.len());
                all.extend_from_slice(&start);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}
