//! The executor sends all requests about single objects, with limits by class, with dry run, and
//! with fewer requests to a server that is overloaded. The caller interprets the response.
//!
//! The example [`runner`](https://github.com/belayer/belayer/blob/main/crates/holds/examples/runner.rs) has one for all requests of a controller.
//!
//! ```no_run
//! use belayer_core::{Bounds, Class, Executor, ObjectKey, Patched, RequestError, Resource, Writes};
//!
//! # async fn label(client: kube::Client) -> Result<(), RequestError> {
//! let executor = Executor::new(client, "my-controller", Bounds::default(), Writes::Sent);
//! let patch = br#"{"metadata":{"labels":{"seen":"true"}}}"#;
//! let key = ObjectKey::new("shop", "web-0");
//! match executor.patch(&Resource::pods(), &key, patch, Class::Write).await? {
//!     Patched::At { version, .. } => println!("{key} is at version {}", version.get()),
//!     Patched::DryRun => println!("{key} would be patched"),
//! }
//! # Ok(())
//! # }
//! ```

mod lanes;
mod limits;
mod tickets;
mod turn;
mod window;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use kube::Client;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::election::Leadership;
use crate::http::{
    Answer, METADATA_ONLY, METADATA_ONLY_AS_PROTOBUF, Pages, PatchKind, Request, RequestError,
    media_type,
};
use crate::object::{ObjectKey, Resource, ResourceVersion, Uid};
use crate::slim::protobuf::{PROTOBUF, version_and_finalizers};

use lanes::{Lane, Lanes, Slot};
pub use limits::{Bounds, Class, Limits};
pub use tickets::{Tickets, Work};
pub(crate) use turn::on_behalf_of;

/// Whether an executor sends writes. An argument of
/// [`Executor::new`](crate::executor::Executor::new); the [module's example](self) sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// They are sent.
    Sent,
    /// They are decided and reported but not sent: `--dry-run`. This includes Events.
    DryRun,
}

/// Sends requests within [`Limits`]. The [module's example](self) sends a patch with one.
pub struct Executor {
    client: Client,
    /// For streams, which would occupy a connection of `client`.
    streams: Client,
    field_manager: &'static str,
    limits: Arc<Limits>,
    lanes: Arc<Lanes>,
    /// Whether the work has begun: then its requests do not wait for a token, but are charged for.
    has_begun: bool,
    writes: Writes,
    leadership: Leadership,
}

/// The result of a successful write. Returned by
/// [`Executor::write`](crate::executor::Executor::write), which is used as in the [module's
/// example](self).
#[derive(Debug)]
pub enum Sent {
    /// The server applied it.
    Applied(Answer),
    /// It was not sent because of `--dry-run`.
    DryRun,
}

/// The result of a successful patch. Returned by
/// [`Executor::patch`](crate::executor::Executor::patch); the [module's example](self) has both
/// variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patched {
    /// The server applied it and responded with the object.
    At {
        /// The version of the object.
        version: ResourceVersion,
        /// The finalizers of the object.
        finalizers: Vec<String>,
    },
    /// It was not sent because of `--dry-run`.
    DryRun,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("limits", &self.limits)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

impl Executor {
    /// Creates an executor that sends by `client` and writes as `field_manager`.
    pub fn new(
        client: Client,
        field_manager: &'static str,
        bounds: Bounds,
        writes: Writes,
    ) -> Self {
        Self {
            streams: client.clone(),
            client,
            field_manager,
            limits: Limits::new(bounds),
            lanes: Lanes::new(bounds.concurrent_releases),
            has_begun: false,
            writes,
            leadership: Leadership::unlimited(),
        }
    }

    /// The time in which writes are sent.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Restricts writes to the time while `leadership` lasts.
    #[must_use]
    pub fn within(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    /// Sets the client for components with a stream of their own; by default the executor's.
    #[must_use]
    pub fn with_streams(self, streams: Client) -> Self {
        Self { streams, ..self }
    }

    /// An executor with the same limits, for work that got its token from [`Tickets`]: its requests
    /// do not wait for a token.
    fn for_work_that_has_begun(&self) -> Self {
        Self {
            client: self.client.clone(),
            streams: self.streams.clone(),
            field_manager: self.field_manager,
            limits: Arc::clone(&self.limits),
            lanes: Arc::clone(&self.lanes),
            has_begun: true,
            writes: self.writes,
            leadership: self.leadership.clone(),
        }
    }

    /// Waits until a request may be sent. Work that has begun has its slot and its token.
    ///
    /// # Errors
    ///
    /// A 429 while its lane is paused.
    async fn enter(
        &self,
        lane: &Arc<Lane>,
        class: Class,
        request: &Request,
    ) -> Result<Option<Slot>, RequestError> {
        // Before a token is taken.
        lane.check()?;
        if self.has_begun {
            self.limits.charge(class);
            return Ok(None);
        }
        if class == Class::Release {
            return lane.slot(|| turn::of(request)).await.map(Some);
        }
        self.limits.acquire(class, || turn::of(request)).await;
        // It may have been paused in the meantime.
        lane.check().map(|()| None)
    }

    /// The field manager of patches and the source of Events.
    pub fn field_manager(&self) -> &'static str {
        self.field_manager
    }

    /// Whether writes are sent.
    pub fn writes(&self) -> Writes {
        self.writes
    }

    /// The client for components with a stream of their own.
    pub fn streams(&self) -> &Client {
        &self.streams
    }

    /// The client of all other requests, for components that do not need the limits.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a read; waits for its turn first.
    ///
    /// # Errors
    ///
    /// As [`Request::send`]. While the server's `Retry-After` lasts, a 429 without a request.
    pub async fn read(&self, request: &Request, class: Class) -> Result<Answer, RequestError> {
        let lane = self.lanes.of_path(class, request.path());
        let _slot = self.enter(&lane, class, request).await?;
        let begun = Instant::now();
        let answer = request.send_as(class.urgency(), &self.client).await;
        lane.record(begun, answer.as_ref().err());
        answer
    }

    /// Reads an object as evidence, in this media type; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`].
    pub async fn find(
        &self,
        kind: &Resource,
        key: &ObjectKey,
        accept: impl Into<Cow<'static, str>>,
    ) -> Result<Option<Answer>, RequestError> {
        let request = Request::get(kind.object_path(key)).accept(accept);
        match self.read(&request, Class::Evidence).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is_gone(kind, key) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a page of a list as evidence, with half as many objects as long as it is too large.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`].
    pub async fn page(
        &self,
        pages: &mut Pages,
        request: impl Fn(&Pages) -> Request,
    ) -> Result<Answer, RequestError> {
        loop {
            match self.read(&request(pages), Class::Evidence).await {
                Err(error) if pages.halve(&error) => {}
                answer => return answer,
            }
        }
    }

    /// Sends a write; waits for its turn first. Nothing is sent with `--dry-run`, nor by a replica
    /// that is not the leader.
    ///
    /// # Errors
    ///
    /// As [`Executor::read`], or [`RequestError::NotLeading`]. After a timeout or a broken
    /// connection the write may have been applied.
    pub async fn write(&self, request: &Request, class: Class) -> Result<Sent, RequestError> {
        if self.writes == Writes::DryRun {
            return Ok(Sent::DryRun);
        }
        let lane = self.lanes.of_path(class, request.path());
        let _slot = self.enter(&lane, class, request).await?;
        let begun = Instant::now();
        let sent = request.send_as(class.urgency(), &self.client);
        let answer = self.leadership.within(sent).await;
        lane.record(begun, answer.as_ref().err());
        answer.map(Sent::Applied)
    }

    /// Deletes the object with this UID, with background propagation. Asks for metadata only in the
    /// response.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`]; a conflict means that the name belongs to another object.
    pub async fn delete(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        uid: &Uid,
    ) -> Result<Sent, RequestError> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid.as_str() },
            "propagationPolicy": "Background",
        });
        let request =
            Request::delete(resource.object_path(key), options.to_string()).accept(METADATA_ONLY);
        self.write(&request, Class::Write).await
    }

    /// Sends a merge patch. Asks for metadata only in the response: a pod can be 200 KB.
    ///
    /// # Errors
    ///
    /// As [`Executor::write`].
    pub async fn patch(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        patch: &[u8],
        class: Class,
    ) -> Result<Patched, RequestError> {
        let body = bytes::Bytes::copy_from_slice(patch);
        let request = Request::patch(resource.object_path(key), PatchKind::Merge, body)
            .query("fieldManager", self.field_manager)
            .accept(METADATA_ONLY_AS_PROTOBUF);
        match self.write(&request, class).await? {
            Sent::Applied(answer) => {
                let (version, finalizers) =
                    version_and_finalizers_of(&answer).ok_or_else(|| {
                        RequestError::Decode(
                            "the response to a patch has no object with a version".into(),
                        )
                    })?;
                Ok(Patched::At {
                    version,
                    finalizers,
                })
            }
            Sent::DryRun => Ok(Patched::DryRun),
        }
    }
}

/// The version in the response to a patch. A response without a version does not come from the API
/// server; a proxy may have sent it, so it proves nothing. The informer's
/// [`Store::wait_for`](crate::informer::Store::wait_for) takes it; the [module's example](self)
/// gets one by a patch.
pub fn version_of(answer: &Answer) -> Option<ResourceVersion> {
    version_and_finalizers_of(answer).map(|(version, _)| version)
}

fn version_and_finalizers_of(answer: &Answer) -> Option<(ResourceVersion, Vec<String>)> {
    if media_type(&answer.content_type) == PROTOBUF {
        return version_and_finalizers(&answer.body).ok();
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
        #[serde(default)]
        finalizers: Option<Vec<String>>,
    }
    let Object { metadata } = answer.json().ok()?;
    let version = ResourceVersion::parse(&metadata.resource_version)?;
    Some((version, metadata.finalizers.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    /// `k8s\0`, then the field of the message, in it the field of the metadata, in it version 42.
    const OBJECT: &[u8] = b"k8s\0\x12\x06\x0a\x04\x32\x0242";
    /// The same with the finalizer `h`.
    const WITH_FINALIZER: &[u8] = b"k8s\0\x12\x09\x0a\x07\x32\x0242\x72\x01h";
    /// Without a version.
    const NO_VERSION: &[u8] = b"k8s\0\x12\x02\x0a\x00";

    #[rstest]
    #[case::protobuf(PROTOBUF, OBJECT, Some(42), &[])]
    #[case::protobuf_with_a_finalizer(PROTOBUF, WITH_FINALIZER, Some(42), &["h"])]
    #[case::json(
        "application/json",
        br#"{"metadata":{"resourceVersion":"42"}}"#,
        Some(42),
        &[]
    )]
    #[case::json_with_a_finalizer(
        "application/json",
        br#"{"metadata":{"resourceVersion":"42","finalizers":["h"]}}"#,
        Some(42),
        &["h"]
    )]
    #[case::no_version(PROTOBUF, NO_VERSION, None, &[])]
    #[case::broken_off(PROTOBUF, b"k8s\0\x12\x06\x0a", None, &[])]
    #[case::invalid_protobuf(PROTOBUF, b"{}", None, &[])]
    #[case::no_object("application/json", b"[]", None, &[])]
    fn the_response_to_a_patch_has_the_version_and_the_finalizers(
        #[case] content_type: &str,
        #[case] body: &'static [u8],
        #[case] version: Option<u64>,
        #[case] finalizers: &[&str],
    ) {
        let answer = Answer {
            status: http::StatusCode::OK,
            content_type: content_type.to_owned(),
            body: Bytes::from_static(body),
        };
        let finalizers = finalizers.iter().map(ToString::to_string).collect();
        let expected = version.map(|version| (ResourceVersion::new(version), finalizers));
        assert_eq!(version_and_finalizers_of(&answer), expected);
    }

    #[tokio::test]
    async fn a_deletion_has_the_uid_as_precondition() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sent);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                seen.lock().unwrap().push(body);
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from("{}"))))
            }
        });
        let client = Client::new(service, "default");
        let executor = Executor::new(client, "manager", Bounds::default(), Writes::Sent);
        let (key, uid) = (ObjectKey::new("shop", "web-0"), Uid::new("u1"));
        let deleted = executor.delete(&Resource::pods(), &key, &uid).await;
        assert!(matches!(deleted, Ok(Sent::Applied(_))), "{deleted:?}");
        let sent = sent.lock().unwrap();
        let options: Value = serde_json::from_slice(&sent[0]).unwrap();
        assert_eq!(options["preconditions"], json!({ "uid": "u1" }));
    }
}
