//! Who may read the metrics: the API server decides, by a TokenReview and a SubjectAccessReview (T5).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use belayer_core::http::{self as api, RequestError};
use http::{HeaderMap, StatusCode, header};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, error::Elapsed, sleep_until, timeout};

use super::text;

/// How long the answer for an allowed token holds.
const ALLOWED_FOR: Duration = Duration::from_secs(60);

/// How many tokens that were allowed are kept.
const KEPT: usize = 16;

/// The shortest time from one review to the next, so that no client floods the API server through this endpoint.
const PAUSE: Duration = Duration::from_millis(50);

/// How many requests of one peer wait for the review of a token that was not allowed before, so that a client that invents
/// tokens does not delay another one whose token is new.
const WAITING_OF_A_PEER: usize = 2;

/// Longest time of a review.
const WITHIN: Duration = Duration::from_secs(5);

/// Whether the API server allows `get` of the path `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ruling {
    Allowed,
    /// It does not know the token.
    Unknown,
    /// The user of the token may not.
    Forbidden(String),
}

/// Why there is no ruling.
#[derive(Debug, thiserror::Error)]
enum Unreviewed {
    #[error("the API server did not review the token: {0}")]
    Request(#[from] RequestError),
    #[error("the API server did not review the token within {} s", WITHIN.as_secs())]
    TooLate(#[from] Elapsed),
    #[error(
        "{WAITING_OF_A_PEER} requests of this address wait for the review of their token already"
    )]
    TooMany,
}

/// The address of the client of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// A request that waits for the review of a token.
struct Waiting<'a> {
    all: &'a StdMutex<Vec<IpAddr>>,
    peer: IpAddr,
}

impl<'a> Waiting<'a> {
    /// `None` if too many requests of the peer wait already.
    fn begin(all: &'a StdMutex<Vec<IpAddr>>, peer: IpAddr) -> Option<Self> {
        let mut peers = all.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.iter().filter(|one| **one == peer).count() >= WAITING_OF_A_PEER {
            return None;
        }
        peers.push(peer);
        Some(Self { all, peer })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut peers = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = peers.iter().position(|one| *one == self.peer) {
            peers.swap_remove(index);
        }
    }
}

/// Lets only clients read that the API server allows to.
pub struct Authorization {
    client: Client,
    /// The tokens that were allowed, and when their last reviews began.
    allowed: StdMutex<Vec<(String, Instant)>>,
    /// When the last review of such a token began. They do not queue behind tokens that anyone can invent.
    renewal: Mutex<Option<Instant>>,
    /// When the last review of another token began.
    first: Mutex<Option<Instant>>,
    /// The peers of the requests that wait for such a review.
    waiting: StdMutex<Vec<IpAddr>>,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorization").finish_non_exhaustive()
    }
}

impl Authorization {
    /// Asks through this client, whose user must be allowed to create both reviews.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            allowed: StdMutex::default(),
            renewal: Mutex::default(),
            first: Mutex::default(),
            waiting: StdMutex::default(),
        }
    }

    /// The same routes, for allowed clients only.
    pub(super) fn protect<S: Clone + Send + Sync + 'static>(
        self: Arc<Self>,
        routes: Router<S>,
    ) -> Router<S> {
        routes.route_layer(from_fn_with_state(self, check))
    }

    /// Reviews take turns.
    async fn rule(&self, token: &str, peer: IpAddr) -> Result<Ruling, Unreviewed> {
        let (turn, _waiting) = match self.allowed_at(token) {
            Some(at) if at.elapsed() < ALLOWED_FOR => return Ok(Ruling::Allowed),
            Some(_) => (&self.renewal, None),
            None => {
                let waiting = Waiting::begin(&self.waiting, peer).ok_or(Unreviewed::TooMany)?;
                (&self.first, Some(waiting))
            }
        };
        let mut last = turn.lock().await;
        // Perhaps another request of this client came first.
        if self
            .allowed_at(token)
            .is_some_and(|at| at.elapsed() < ALLOWED_FOR)
        {
            return Ok(Ruling::Allowed);
        }
        if let Some(last) = *last {
            sleep_until(last + PAUSE).await;
        }
        let began = Instant::now();
        *last = Some(began);
        let ruling = timeout(WITHIN, self.review(token)).await??;
        let mut allowed = self.allowed();
        allowed.retain(|(one, _)| one != token);
        if ruling == Ruling::Allowed {
            if allowed.len() == KEPT {
                allowed.remove(0);
            }
            allowed.push((token.to_owned(), began));
        }
        Ok(ruling)
    }

    fn allowed(&self) -> MutexGuard<'_, Vec<(String, Instant)>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowed_at(&self, token: &str) -> Option<Instant> {
        let allowed = self.allowed();
        allowed
            .iter()
            .find(|(one, _)| one == token)
            .map(|(_, at)| *at)
    }

    async fn review(&self, token: &str) -> Result<Ruling, RequestError> {
        let spec = json!({ "token": token });
        let status = self
            .create("authentication.k8s.io", "TokenReview", spec)
            .await?;
        let user = &status["user"];
        let name = user["username"].as_str().unwrap_or_default();
        if status["authenticated"] != true || name.is_empty() {
            return Ok(Ruling::Unknown);
        }
        let spec = json!({
            "user": name,
            "uid": user["uid"],
            "groups": user["groups"],
            "extra": user["extra"],
            "nonResourceAttributes": { "path": "/metrics", "verb": "get" },
        });
        let status = self
            .create("authorization.k8s.io", "SubjectAccessReview", spec)
            .await?;
        Ok(
            match status["allowed"] == true && status["denied"] != true {
                true => Ruling::Allowed,
                false => Ruling::Forbidden(name.to_owned()),
            },
        )
    }

    /// Creates a review, which the API server does not store, and returns its status.
    async fn create(&self, group: &str, kind: &str, spec: Value) -> Result<Value, RequestError> {
        let path = format!("/apis/{group}/v1/{}s", kind.to_lowercase());
        let review = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec });
        let answer = api::Request::post(path, review.to_string());
        let mut answer: Value = answer.send(&self.client).await?.json()?;
        Ok(answer["status"].take())
    }
}

/// Answers 401 without a valid token, 403 without the permission, 429 if too many requests of the client wait, and 500 if the
/// API server does not report the result.
async fn check(
    State(authorization): State<Arc<Authorization>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = token(request.headers()) else {
        return unauthorized();
    };
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |Peer(peer)| *peer);
    match authorization.rule(token, peer).await {
        Ok(Ruling::Allowed) => next.run(request).await,
        Ok(Ruling::Unknown) => unauthorized(),
        Ok(Ruling::Forbidden(user)) => text(
            StatusCode::FORBIDDEN,
            format!("{user} may not get the path /metrics\n"),
        ),
        Err(error) => {
            let status = match error {
                Unreviewed::TooMany => StatusCode::TOO_MANY_REQUESTS,
                Unreviewed::Request(_) | Unreviewed::TooLate(_) => {
                    StatusCode::INTERNAL_SERVER_ERROR
                }
            };
            text(status, format!("{error}\n"))
        }
    }
}

fn unauthorized() -> Response {
    let message = "a bearer token that the API server accepts is required\n";
    let answer = text(StatusCode::UNAUTHORIZED, message.to_owned());
    ([(header::WWW_AUTHENTICATE, "Bearer")], answer).into_response()
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
