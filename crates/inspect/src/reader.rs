//! A rate-limited client that sends GET requests only. The example of
//! [`Reader`] reads the version of a server.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use belayer_core::executor::{Bounds, Class, Executor, Writes};
use belayer_core::http::{Answer, ErrorClass, JSON, Pages, Request, RequestError};
use belayer_core::informer::{self, Decoders, Reading};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::names::FIELD_MANAGER;

pub(crate) use crate::contact::one_line;
pub use crate::contact::{Contact, Trouble, explain};

/// Objects per page of a list, as in kubectl.
pub const PAGE: u32 = 500;

/// Objects per page of what [`Reader::pages`] reads: each page is a request, and most kinds have fewer objects.
const LARGE_PAGE: u32 = 1_000;

/// Maximum number of attempts for a request that the server answers with 429.
const ATTEMPTS: u32 = 8;

/// Maximum wait before a retry, whatever `Retry-After` says.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A client that can only read. Cheap to clone.
///
/// ```no_run
/// use belayer_core::{Bounds, RequestError};
/// use belayer_inspect::Reader;
///
/// # async fn version(client: kube::Client) -> Result<(), RequestError> {
/// let reader = Reader::new(client, Bounds::default());
/// println!("{:?}", reader.server_version().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Reader {
    executor: Arc<Executor>,
    requests: Arc<AtomicU64>,
    contact: Arc<Contact>,
}

/// The result of a live read. Returned by the methods of [`Reader`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadResult<T> {
    /// It exists.
    Found(T),
    /// It does not exist: the server answered NotFound and named it.
    Absent,
    /// The read failed, with this message.
    Unknown(String),
}

impl<T> ReadResult<T> {
    /// The value, if it was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// Applies `f` to the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> ReadResult<U> {
        match self {
            Self::Found(found) => ReadResult::Found(f(found)),
            Self::Absent => ReadResult::Absent,
            Self::Unknown(why) => ReadResult::Unknown(why),
        }
    }

    /// Why the read failed; `None` if it did not.
    pub fn why_unknown(&self) -> Option<&str> {
        match self {
            Self::Unknown(why) => Some(why),
            Self::Found(_) | Self::Absent => None,
        }
    }
}

impl<T> From<Result<T, RequestError>> for ReadResult<T> {
    /// An error is unknown, also one that says that a collection does not exist.
    fn from(read: Result<T, RequestError>) -> Self {
        match read {
            Ok(found) => Self::Found(found),
            Err(error) => Self::Unknown(explain(&error)),
        }
    }
}

impl Reader {
    /// A reader over `client` with these limits. Its executor never sends a write.
    pub fn new(client: kube::Client, bounds: Bounds) -> Self {
        Self {
            executor: Arc::new(Executor::new(client, FIELD_MANAGER, bounds, Writes::DryRun)),
            requests: Arc::default(),
            contact: Arc::default(),
        }
    }

    /// The executor, for live readers of other crates.
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// How many requests have been sent through this reader.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether the server answers.
    pub fn contact(&self) -> &Contact {
        &self.contact
    }

    /// Sends a request. After a 429 it is sent again as `Retry-After` says.
    ///
    /// # Errors
    ///
    /// As [`Request::send`].
    pub async fn read(&self, request: &Request) -> Result<Answer, RequestError> {
        let _waiting = self.contact.waiting();
        let mut attempt = 1;
        loop {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let sent = self.executor.read(request, Class::Evidence);
            let error = match self.contact.asked(sent).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let Some(wait) = wait_before_retry(&error, attempt) else {
                return Err(error);
            };
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// Reads JSON.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`], and if the answer cannot be decoded.
    pub async fn json<T: DeserializeOwned>(&self, request: &Request) -> Result<T, RequestError> {
        self.read(request).await?.json()
    }

    /// The version of the API server; `None` if this user may not read it.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is not an API server, or does not accept the credentials: then no other read can
    /// succeed.
    pub async fn server_version(&self) -> Result<Option<String>, RequestError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        match self.json::<Version>(&Request::get("/version")).await {
            Ok(version) => Ok(Some(version.git_version)),
            Err(error) if error.class() == ErrorClass::Forbidden => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads one object.
    pub async fn object<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        key: &ObjectKey,
    ) -> ReadResult<T> {
        match self.json(&Request::get(resource.object_path(key))).await {
            Ok(object) => ReadResult::Found(object),
            Err(error) if error.is_gone(resource, key) => ReadResult::Absent,
            Err(error) => ReadResult::Unknown(explain(&error)),
        }
    }

    /// Reads a collection, or the part of it that a query parameter such as `labelSelector` selects. Passes each page to
    /// `page`, which returns its continue token. A page that is too large is requested again with half as many objects.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`]. If a continue token has expired, the error has the class `Gone`.
    pub async fn pages(
        &self,
        path: &str,
        accept: &str,
        query: Option<(&'static str, &str)>,
        mut page: impl FnMut(&Answer) -> Result<Option<String>, RequestError>,
    ) -> Result<(), RequestError> {
        let mut pages = Pages::of(LARGE_PAGE);
        loop {
            let mut request = pages.request(path).accept(accept.to_owned());
            if let Some((name, value)) = query {
                request = request.query(name, value);
            }
            let answer = match self.read(&request).await {
                Err(error) if pages.halve(&error) => continue,
                read => read?,
            };
            if !pages.turn(page(&answer)?)? {
                return Ok(());
            }
        }
    }

    /// As [`Reader::pages`], with each object.
    ///
    /// # Errors
    ///
    /// As [`Reader::pages`].
    pub async fn items<T: DeserializeOwned>(
        &self,
        path: &str,
        accept: &str,
        query: Option<(&'static str, &str)>,
        mut item: impl FnMut(T),
    ) -> Result<(), RequestError> {
        let read = self.pages(path, accept, query, |answer| {
            let page: Page<T> = Page::read(answer)?;
            page.items.into_iter().flatten().for_each(&mut item);
            Ok(page.metadata.continue_token)
        });
        read.await
    }

    /// As [`Reader::pages`], with each page as `decoders` read it.
    ///
    /// # Errors
    ///
    /// As [`Reader::pages`].
    pub async fn decoded_pages<K: 'static>(
        &self,
        path: &str,
        decoders: &Decoders<K>,
        mut page: impl FnMut(informer::Page<K>) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let accept = decoders.accept(Reading::List);
        let read = self.pages(path, &accept, None, |answer| {
            let mut read = decoders.read_page(answer)?;
            let token = read.continue_token.take();
            page(read).map(|()| token)
        });
        read.await
    }

    /// Reads a collection of complete objects into memory. Starts again, once, if a continue token has expired.
    ///
    /// # Errors
    ///
    /// As [`Reader::pages`].
    pub async fn all<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, RequestError> {
        again_if_expired(|| async {
            let mut all = Vec::new();
            self.items(path, JSON, None, |item| all.push(item)).await?;
            Ok(all)
        })
        .await
    }
}

/// Reads a collection again, once, if a continue token has expired (410): for [`Reader::pages`].
///
/// # Errors
///
/// The error of the last read.
pub async fn again_if_expired<T, F>(read: impl Fn() -> F) -> Result<T, RequestError>
where
    F: Future<Output = Result<T, RequestError>>,
{
    match read().await {
        Err(error) if error.class() == ErrorClass::Gone => read().await,
        done => done,
    }
}

/// A page of a list in JSON. [`Reader::all`] reads all of them.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub struct Page<T> {
    /// The metadata of the list.
    #[serde(default)]
    pub metadata: PageMeta,
    /// The API server writes `null` for an empty list of metadata. Without the field the answer is not a list, and must
    /// not count as an empty one.
    #[serde(deserialize_with = "Option::deserialize")]
    pub items: Option<Vec<T>>,
}

/// The metadata of a [`Page`], with which [`Reader::all`] goes on.
#[derive(Debug, Default, Deserialize)]
pub struct PageMeta {
    /// With which the next [`Page`] is read; none or empty on the last one.
    #[serde(default, rename = "continue")]
    pub continue_token: Option<String>,
}

impl<'a, T: Deserialize<'a>> Page<T> {
    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// If it is not a list.
    pub fn read(answer: &'a Answer) -> Result<Self, RequestError> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| RequestError::Decode(error.to_string()))
    }
}

/// How long to wait before the same request is sent again; `None` if it is not.
fn wait_before_retry(error: &RequestError, attempt: u32) -> Option<Duration> {
    let may_retry = match error.class() {
        ErrorClass::TooManyRequests => true,
        // Without `Retry-After` it may be an aggregated API that has been down for weeks.
        ErrorClass::Unavailable => error.retry_after().is_some() && attempt < 3,
        ErrorClass::Connection | ErrorClass::Timeout => attempt < 2,
        _ => false,
    };
    let backoff = Duration::from_millis(250) * 2_u32.saturating_pow(attempt.min(8));
    (may_retry && attempt < ATTEMPTS).then(|| error.retry_after().unwrap_or(backoff).min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belayer_core::http::{ApiError, DEFAULT_BODY_LIMIT};
    use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb};
    use rstest::rstest;

    #[test]
    fn a_request_is_repeated_after_retry_after() {
        let error: RequestError =
            ApiError::from_answer(429, Some(Duration::from_secs(3)), b"").into();
        assert_eq!(wait_before_retry(&error, 1), Some(Duration::from_secs(3)));
        assert_eq!(wait_before_retry(&error, ATTEMPTS), None);
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_requested_again_with_half_as_many_objects() {
        let sandbox = Sandbox::builder().build();
        sandbox
            .load_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
            .unwrap();
        let large = Answer::raw(200, "application/json", " ".repeat(DEFAULT_BODY_LIMIT + 1));
        let first = Fault::on(Match::verb(Verb::List).resource("configmaps"));
        sandbox.faults().inject(first.times(2).answer(large));
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let all: Vec<serde_json::Value> = reader.all("/api/v1/configmaps").await.unwrap();
        assert_eq!((all.len(), reader.requests()), (1, 3));
    }

    #[tokio::test]
    async fn a_server_that_repeats_a_page_is_not_read_for_ever() {
        let sandbox = Sandbox::builder().build();
        let page = r#"{"metadata": {"continue": "again"}, "items": []}"#;
        let lists = Fault::on(Match::verb(Verb::List).resource("configmaps"));
        let same = lists.answer(Answer::raw(200, "application/json", page));
        sandbox.faults().inject(same);
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let all: Result<Vec<serde_json::Value>, _> = reader.all("/api/v1/configmaps").await;
        assert_eq!((all.is_ok(), reader.requests()), (false, 2));
    }

    #[rstest]
    #[case::once(1, Answer::gone(), true, 2)]
    #[case::always(9, Answer::gone(), false, 2)]
    #[case::denied(1, Answer::forbidden("no"), false, 1)]
    #[tokio::test]
    async fn a_list_whose_token_has_expired_starts_again_once(
        #[case] times: u64,
        #[case] answer: Answer,
        #[case] succeeds: bool,
        #[case] requests: u64,
    ) {
        let sandbox = Sandbox::builder().build();
        let lists = Fault::on(Match::verb(Verb::List).resource("configmaps"));
        sandbox.faults().inject(lists.times(times).answer(answer));
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let all: Result<Vec<serde_json::Value>, _> = reader.all("/api/v1/configmaps").await;
        assert_eq!((all.is_ok(), reader.requests()), (succeeds, requests));
    }

    #[test]
    fn an_api_that_is_down_is_not_waited_for() {
        let error: RequestError = ApiError::from_answer(503, None, b"").into();
        assert_eq!(wait_before_retry(&error, 1), None);
    }
}
