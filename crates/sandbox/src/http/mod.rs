//! The HTTP service: one implementation, used in-process or behind a listener.

mod body;
mod discovery;
mod listener;
mod negotiate;
mod openapi;
mod options;
mod read;
mod resource;
mod respond;
mod review;
mod route;
mod table;
#[cfg(test)]
mod tests;
mod watch;
#[cfg(feature = "cel")]
mod webhooks;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio_util::sync::DropGuard;

pub use body::SandboxBody;
pub use listener::Listener;
use respond::Answer;
pub(crate) use route::Query;
use route::Route;

use crate::access::{self, Access, Authorization, User};
use crate::address::{Actor, Gvr};
use crate::cluster::Cluster;
use crate::error::{ApiError, Reason, qualified};
use crate::faults::{Decision, Fate, Faults, Rendered, Target};
use crate::meta;
use crate::user::service_account;

/// Largest body of a request, in bytes: etcd's own limit is 1.5 MiB, the server reads up to 3 MiB.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// State shared by all services of one sandbox.
pub(crate) struct Server {
    pub(crate) cluster: Cluster,
    pub(crate) faults: Faults,
    pub(crate) authorization: Authorization,
    /// Stops the simulated controllers when the last handle of the sandbox is dropped.
    pub(crate) _controllers: DropGuard,
}

/// An in-process connection to the API server: a `tower::Service` without sockets.
///
/// Requests fail with [`io::Error`] only where a fault breaks the connection.
///
/// [`Sandbox::service`](crate::Sandbox::service) returns it;
/// [`Sandbox::client`](crate::Sandbox::client), in the [crate's example](crate), wraps one.
#[derive(Clone)]
pub struct SandboxService {
    server: Arc<Server>,
    client: Option<Actor>,
}

impl std::fmt::Debug for SandboxService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxService")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

type AnswerFuture = Pin<Box<dyn Future<Output = io::Result<Response<SandboxBody>>> + Send>>;

impl SandboxService {
    pub(crate) fn new(server: Arc<Server>, client: Option<Actor>) -> Self {
        SandboxService { server, client }
    }
}

impl<B> tower::Service<Request<B>> for SandboxService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<SandboxBody>;
    type Error = io::Error;
    type Future = AnswerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> AnswerFuture {
        let server = Arc::clone(&self.server);
        let client = self.client.clone();
        Box::pin(async move {
            if !server.faults.is_available() {
                return Err(refused());
            }
            let (parts, body) = request.into_parts();
            let limited = http_body_util::Limited::new(body, MAX_BODY);
            let body = match limited.collect().await {
                Ok(body) => Ok(body.to_bytes()),
                Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
                Err(error) => return Err(io::Error::other(error)),
            };
            let client = client.unwrap_or_else(|| identify(&parts.headers));
            server.handle(client, parts, body).await
        })
    }
}

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionRefused,
        "the sandbox refuses connections",
    )
}

pub(crate) fn broken() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the sandbox broke the connection",
    )
}

fn too_large() -> ApiError {
    ApiError::new(
        413,
        Reason::RequestEntityTooLarge,
        format!("Request entity too large: limit is {MAX_BODY}"),
    )
}

/// The client: from a bearer token `user:NAME`, else the product of the user agent.
fn identify(headers: &HeaderMap) -> Actor {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    };
    let token = text(http::header::AUTHORIZATION).strip_prefix("Bearer user:");
    if let Some(user) = token.filter(|user| !user.is_empty()) {
        return Actor::of_token(user);
    }
    let agent = text(http::header::USER_AGENT);
    let product = agent.split(['/', ' ']).next().unwrap_or_default();
    Actor::new(if product.is_empty() {
        "unknown"
    } else {
        product
    })
}

/// A request while it is handled.
pub(crate) struct Call {
    pub(crate) actor: Actor,
    /// The user that the request is authorized as.
    pub(crate) user: User,
    /// Whether it is made in the name of another user than the client's.
    pub(crate) impersonates: bool,
    pub(crate) parts: Parts,
    pub(crate) query: Query,
    pub(crate) body: Bytes,
    pub(crate) decision: Decision,
    pub(crate) target: Target,
}

impl Server {
    async fn handle(
        self: Arc<Self>,
        actor: Actor,
        parts: Parts,
        body: Result<Bytes, ApiError>,
    ) -> io::Result<Answer> {
        let query = Query::parse(&parts.uri);
        let route = route::route(&parts.uri);
        let target = self.target(&actor, &parts, route.as_ref(), &query);
        if let Some(verb) = target.verb {
            let resource = qualified(&target.resource, &target.group);
            self.cluster.recorder().count(&actor, verb, &resource);
        }
        let mut decision = self.faults.decide(&target);
        if !decision.delay.is_zero() {
            tokio::time::sleep(decision.delay).await;
        }
        match std::mem::take(&mut decision.fate) {
            Fate::Pass => {}
            Fate::LoseRequest => return Err(broken()),
            Fate::LoseAnswer => {
                if let Ok(body) = body {
                    let lost = self.authorized(actor, parts, query, body, decision, target, route);
                    drop(lost.await);
                }
                return Err(broken());
            }
            Fate::HandleLate(after) => {
                if let Ok(body) = body {
                    tokio::spawn(async move {
                        tokio::time::sleep(after).await;
                        let actor = actor.late();
                        if self.faults.is_available() {
                            let late =
                                self.authorized(actor, parts, query, body, decision, target, route);
                            drop(late.await);
                        }
                    });
                }
                return Err(broken());
            }
            Fate::Hang(rule) => self.hang(rule).await,
            Fate::Answer(answer) => {
                return Ok(match answer.render(&target) {
                    Rendered::Error(error) => respond::refuse(&error),
                    Rendered::Raw {
                        status,
                        content_type,
                        body,
                    } => respond::raw(status, content_type, body),
                });
            }
        }
        if !self.faults.is_available() {
            return Err(broken());
        }
        let body = match body {
            Ok(body) => body,
            Err(error) => return Ok(respond::refuse(&error)),
        };
        let answer = self.authorized(actor, parts, query, body, decision, target, route);
        Ok(answer.await)
    }

    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    async fn authorized(
        self: &Arc<Self>,
        actor: Actor,
        parts: Parts,
        query: Query,
        body: Bytes,
        decision: Decision,
        target: Target,
        route: Option<Route>,
    ) -> Answer {
        let client = self.known(actor.user());
        let account = !client.uid.is_empty();
        let access = match &route {
            Some(Route::Resource(request)) => route::access_to(&parts, request, &query),
            _ => Access::of_path(&parts),
        };
        let (mode, headers) = (self.authorization, &parts.headers);
        let user = match access::authorize(mode, &self.cluster, client, headers, &access) {
            Ok(user) => user,
            Err(error) => return respond::refuse(&error),
        };
        let impersonates = headers.contains_key("impersonate-user");
        let actor = match impersonates || account {
            true => actor.acting_as(&user),
            false => actor,
        };
        let call = Call {
            impersonates,
            actor,
            user,
            parts,
            query,
            body,
            decision,
            target,
        };
        self.dispatch(&call, route.as_ref()).await
    }

    /// A user with the UID of its account, if it is a service account that is stored.
    fn known(&self, mut user: User) -> User {
        if let Some((namespace, name)) = service_account(&user.name)
            && let Ok(account) = self
                .cluster
                .get(&Gvr::SERVICEACCOUNTS, Some(namespace), name)
        {
            meta::uid(&account).clone_into(&mut user.uid);
        }
        user
    }

    fn target(&self, actor: &Actor, parts: &Parts, route: Option<&Route>, query: &Query) -> Target {
        let mut target = Target {
            client: actor.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            ..Target::default()
        };
        if let Some(Route::Resource(request)) = route {
            let info = self.cluster.resource(&request.gvr);
            target.verb = route::verb(&parts.method, request, query);
            target.group = request.gvr.group.to_string();
            target.resource = request.gvr.resource.to_string();
            target.kind = info.map(|info| info.kind.clone()).unwrap_or_default();
            target.subresource = request.subresource.clone();
            target.namespace = request.namespace.clone();
            target.name = request.name.clone();
        }
        target
    }

    async fn hang(&self, rule: u64) {
        let mut changes = self.faults.changes();
        while self.faults.stands(rule) && self.faults.is_available() {
            changes.changed().await;
        }
    }

    #[cfg(feature = "cel")]
    async fn dispatch(self: &Arc<Self>, call: &Call, route: Option<&Route>) -> Answer {
        if call.parts.method.is_safe() {
            return self.serve(call, route);
        }
        webhooks::converse(self.cluster.rng(), || self.serve(call, route)).await
    }

    #[cfg(not(feature = "cel"))]
    #[allow(clippy::unused_async, reason = "as with CEL")]
    async fn dispatch(self: &Arc<Self>, call: &Call, route: Option<&Route>) -> Answer {
        self.serve(call, route)
    }

    fn serve(self: &Arc<Self>, call: &Call, route: Option<&Route>) -> Answer {
        match route {
            None => respond::refuse(&ApiError::bad_request("invalid path")),
            Some(Route::Other(words)) => discovery::serve(&self.cluster, call, words),
            Some(Route::Resource(request)) => resource::serve(self, call, request),
        }
    }
}
