//! Reading a cluster, politely: bounded, and never anything but GET.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use belayer_core::executor::{Bounds, Class, Executor, Writes};
use belayer_core::http::{Answer, ErrorClass, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::names::FIELD_MANAGER;

pub(crate) use crate::contact::one_line;
pub use crate::contact::{Contact, Trouble, explain};

/// Objects per page of a list: what kubectl asks for.
pub const PAGE: u32 = 500;

/// How often a request that the server put off is sent in all.
const ATTEMPTS: u32 = 8;

/// The server asks to wait, or says nothing: no longer than this.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A client that can only read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    executor: Arc<Executor>,
    requests: Arc<AtomicU64>,
    contact: Arc<Contact>,
}

/// What a look at something found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look<T> {
    /// It is there.
    Found(T),
    /// It is not: the server answered NotFound, naming it.
    Absent,
    /// The answer says nothing either way; why, in words.
    Unknown(String),
}

impl<T> Look<T> {
    /// What was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Absent | Self::Unknown(_) => None,
        }
    }

    /// The same with `f` of what was found.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Found(found) => Look::Found(f(found)),
            Self::Absent => Look::Absent,
            Self::Unknown(why) => Look::Unknown(why),
        }
    }

    /// Why nothing is known; `None` if something is.
    pub fn why_unknown(&self) -> Option<&str> {
        match self {
            Self::Unknown(why) => Some(why),
            Self::Found(_) | Self::Absent => None,
        }
    }
}

impl Reader {
    /// A reader over `client`, within these bounds. The executor under it sends no write at all.
    pub fn new(client: kube::Client, bounds: Bounds) -> Self {
        Self {
            executor: Arc::new(Executor::new(client, FIELD_MANAGER, bounds, Writes::DryRun)),
            requests: Arc::default(),
            contact: Arc::default(),
        }
    }

    /// The executor, for looks that others have already written.
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

    /// Sends a request. One that the server puts off (429) is sent again when the server says so.
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
    /// As [`Reader::read`], and when the answer is something else.
    pub async fn json<T: DeserializeOwned>(&self, request: &Request) -> Result<T, RequestError> {
        self.read(request).await?.json()
    }

    /// The version of the API server; `None` if not everybody may ask for it.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or does not accept the credentials: then nothing can be known.
    pub async fn server_version(&self) -> Result<Option<String>, RequestError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        match self.json::<Version>(&Request::get("/version")).await {
            Ok(version) => Ok(Some(version.git_version)),
            Err(error) if error.class() == ErrorClass::Unauthorized => Err(error),
            Err(error) if error.api().is_some() && !error.class().is_transient() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks at one object.
    pub async fn object<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        key: &ObjectKey,
    ) -> Look<T> {
        match self.json(&Request::get(resource.object_path(key))).await {
            Ok(object) => Look::Found(object),
            Err(error) if error.is_gone(resource, key) => Look::Absent,
            Err(error) => Look::Unknown(explain(&error)),
        }
    }

    /// Reads a whole collection, page by page, and hands each page on.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`]. A continuation that has expired begins anew from the start, once.
    pub async fn pages<F, Fut>(
        &self,
        path: &str,
        accept: &str,
        mut page: F,
    ) -> Result<(), RequestError>
    where
        F: FnMut(Answer) -> Fut,
        Fut: Future<Output = Result<Option<String>, RequestError>>,
    {
        let mut token: Option<String> = None;
        loop {
            let request = Request::list(path, PAGE, token.as_deref()).accept(accept.to_owned());
            let answer = self.read(&request).await?;
            token = page(answer).await?.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads a whole collection of whole objects into memory.
    pub async fn all<T: DeserializeOwned>(&self, path: &str) -> Look<Vec<T>> {
        let mut all = Vec::new();
        let read = self
            .pages(path, belayer_core::http::JSON, |answer| {
                let read = answer.json::<Items<T>>().map(|list| {
                    all.extend(list.items.unwrap_or_default());
                    list.metadata.continue_token
                });
                async move { read }
            })
            .await;
        match read {
            Ok(()) => Look::Found(all),
            Err(error) => Look::Unknown(explain(&error)),
        }
    }
}

#[derive(serde::Deserialize)]
struct Items<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<T>>,
}

#[derive(serde::Deserialize, Default)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    continue_token: Option<String>,
}

/// How long to wait before the same request is sent again; `None` if it is not.
fn wait_before_retry(error: &RequestError, attempt: u32) -> Option<Duration> {
    let put_off = match error.class() {
        ErrorClass::TooManyRequests => true,
        // A server that says when to come back; one that does not may be an aggregated API that
        // has been down for weeks.
        ErrorClass::Unavailable => error.retry_after().is_some() && attempt < 3,
        ErrorClass::Connection | ErrorClass::Timeout => attempt < 2,
        _ => false,
    };
    let backoff = Duration::from_millis(250) * 2_u32.saturating_pow(attempt.min(8));
    (put_off && attempt < ATTEMPTS).then(|| error.retry_after().unwrap_or(backoff).min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use belayer_core::http::ApiError;

    #[test]
    fn a_request_put_off_is_sent_again_when_the_server_says() {
        let error: RequestError =
            ApiError::from_answer(429, Some(Duration::from_secs(3)), b"").into();
        assert_eq!(wait_before_retry(&error, 1), Some(Duration::from_secs(3)));
        assert_eq!(wait_before_retry(&error, ATTEMPTS), None);
    }

    #[test]
    fn an_api_that_is_down_is_not_waited_for() {
        let error: RequestError = ApiError::from_answer(503, None, b"").into();
        assert_eq!(wait_before_retry(&error, 1), None);
    }
}
