//! Who may read the metrics: the API server decides, by a TokenReview and a SubjectAccessReview (T5).

use std::sync::Arc;
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

/// How many allowed tokens are kept.
const KEPT: usize = 16;

/// The shortest time from one review to the next, so that no client floods the API server through this endpoint.
const PAUSE: Duration = Duration::from_millis(50);

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
}

/// Lets only clients read that the API server allows to.
pub struct Authorization {
    client: Client,
    reviews: Mutex<Reviews>,
}

#[derive(Default)]
struct Reviews {
    /// When the last one began.
    last: Option<Instant>,
    /// The allowed tokens, and when their reviews began.
    allowed: Vec<(String, Instant)>,
}

impl Reviews {
    fn is_allowed(&mut self, token: &str) -> bool {
        self.allowed.retain(|(_, at)| at.elapsed() < ALLOWED_FOR);
        self.allowed.iter().any(|(allowed, _)| allowed == token)
    }
}

impl Authorization {
    /// Asks through this client, whose user must be allowed to create both reviews.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            reviews: Mutex::default(),
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
    async fn rule(&self, token: &str) -> Result<Ruling, Unreviewed> {
        let mut reviews = self.reviews.lock().await;
        if reviews.is_allowed(token) {
            return Ok(Ruling::Allowed);
        }
        if let Some(last) = reviews.last {
            sleep_until(last + PAUSE).await;
        }
        let began = Instant::now();
        reviews.last = Some(began);
        let ruling = timeout(WITHIN, self.review(token)).await??;
        if ruling == Ruling::Allowed {
            if reviews.allowed.len() == KEPT {
                reviews.allowed.remove(0);
            }
            reviews.allowed.push((token.to_owned(), began));
        }
        Ok(ruling)
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

/// Answers 401 without a valid token, 403 without the permission, and 500 if the API server does not tell.
async fn check(
    State(authorization): State<Arc<Authorization>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = token(request.headers()) else {
        return unauthorized();
    };
    match authorization.rule(token).await {
        Ok(Ruling::Allowed) => next.run(request).await,
        Ok(Ruling::Unknown) => unauthorized(),
        Ok(Ruling::Forbidden(user)) => text(
            StatusCode::FORBIDDEN,
            format!("{user} may not get the path /metrics\n"),
        ),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
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
