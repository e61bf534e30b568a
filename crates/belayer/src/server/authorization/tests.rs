use axum::body::Body;
use axum::routing::get;
use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb};
use rstest::rstest;
use tokio::time::advance;
use tower::ServiceExt as _;

use super::*;

const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: prometheus}]
";

/// Metrics that only `prometheus` may read. Tokens are `user:NAME`.
struct Protected {
    sandbox: Sandbox,
    routes: Router,
}

impl Protected {
    fn new() -> Self {
        let sandbox = Sandbox::default();
        sandbox.load_yaml(READER).unwrap();
        let authorization = Arc::new(Authorization::new(sandbox.client()));
        let routes = Router::new().route("/metrics", get(async || "belayer_held 1\n"));
        Self {
            sandbox,
            routes: authorization.protect(routes),
        }
    }

    async fn ask(&self, authorization: Option<&str>) -> StatusCode {
        self.ask_from(authorization, [10, 0, 0, 1]).await
    }

    async fn ask_from(&self, authorization: Option<&str>, peer: [u8; 4]) -> StatusCode {
        let mut request = Request::get("/metrics").extension(Peer(peer.into()));
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Body::empty()).unwrap();
        self.routes.clone().oneshot(request).await.unwrap().status()
    }

    fn reviews(&self) -> u64 {
        let kind = "tokenreviews.authentication.k8s.io";
        self.sandbox
            .cluster()
            .recorder()
            .requests("client", Verb::Create, kind)
    }
}

#[rstest]
#[case::allowed(Some("Bearer user:prometheus"), StatusCode::OK)]
#[case::in_any_case(Some("bearer user:prometheus"), StatusCode::OK)]
#[case::without_the_permission(Some("Bearer user:jane"), StatusCode::FORBIDDEN)]
#[case::an_unknown_token(Some("Bearer stolen"), StatusCode::UNAUTHORIZED)]
#[case::an_empty_token(Some("Bearer "), StatusCode::UNAUTHORIZED)]
#[case::another_scheme(Some("Basic user:prometheus"), StatusCode::UNAUTHORIZED)]
#[case::without_a_token(None, StatusCode::UNAUTHORIZED)]
#[tokio::test]
async fn t5_the_api_server_decides_who_reads_the_metrics(
    #[case] authorization: Option<&str>,
    #[case] status: StatusCode,
) {
    assert_eq!(Protected::new().ask(authorization).await, status);
}

#[tokio::test(start_paused = true)]
async fn t5_an_allowed_token_is_reviewed_once_a_minute() {
    let protected = Protected::new();
    for _ in 0..3 {
        assert_eq!(protected.ask(Some("Bearer user:prometheus")).await, 200);
    }
    assert_eq!(protected.reviews(), 1);
    advance(ALLOWED_FOR).await;
    assert_eq!(protected.ask(Some("Bearer user:prometheus")).await, 200);
    assert_eq!(protected.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn t5_invalid_tokens_do_not_flood_the_api_server() {
    let protected = Protected::new();
    let began = Instant::now();
    for guess in 0..20 {
        assert_eq!(
            protected.ask(Some(&format!("Bearer guess-{guess}"))).await,
            401
        );
    }
    assert_eq!(protected.reviews(), 20);
    assert!(began.elapsed() >= PAUSE * 19, "{:?}", began.elapsed());
}

#[tokio::test]
async fn t5_without_an_answer_nothing_is_served() {
    let protected = Protected::new();
    let fault = Fault::on(Match::verb(Verb::Create)).answer(Answer::service_unavailable());
    protected.sandbox.faults().inject(fault);
    let status = protected.ask(Some("Bearer user:prometheus")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
}

/// Whoever guesses tokens makes others who guess wait, and not who was allowed before.
#[tokio::test(start_paused = true)]
async fn t5_invalid_tokens_do_not_delay_an_allowed_one() {
    let protected = Protected::new();
    assert_eq!(protected.ask(Some("Bearer user:prometheus")).await, 200);
    for pause in [Duration::ZERO, ALLOWED_FOR] {
        advance(pause).await;
        let guesses = (0..200).map(|guess| format!("Bearer guess-{guess}"));
        let guesses: Vec<String> = guesses.collect();
        let all = guesses.iter().map(|guess| protected.ask(Some(guess)));
        let all = futures::future::join_all(all);
        let scrape = async {
            tokio::task::yield_now().await;
            let began = Instant::now();
            assert_eq!(protected.ask(Some("Bearer user:prometheus")).await, 200);
            assert!(began.elapsed() <= PAUSE, "{:?}", began.elapsed());
        };
        futures::join!(all, scrape);
    }
}

/// Also a token that is new, such as that of a client whose token was rotated.
#[tokio::test(start_paused = true)]
async fn t5_invalid_tokens_do_not_delay_a_new_one_of_another_client() {
    let protected = Protected::new();
    let guesses: Vec<String> = (0..200)
        .map(|guess| format!("Bearer guess-{guess}"))
        .collect();
    let all = guesses.iter().map(|guess| protected.ask(Some(guess)));
    let all = futures::future::join_all(all);
    let scrape = async {
        tokio::task::yield_now().await;
        let began = Instant::now();
        let token = Some("Bearer user:prometheus");
        assert_eq!(protected.ask_from(token, [10, 0, 0, 2]).await, 200);
        assert!(began.elapsed() <= PAUSE * 3, "{:?}", began.elapsed());
    };
    let (statuses, ()) = futures::join!(all, scrape);
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(refused, 200 - WAITING_OF_A_PEER);
}
