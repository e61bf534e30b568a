//! L10: how many requests and connections a slow server gets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::http::RequestError;
use crate::recorded::Recorded;

/// A server that answers no request to `/slow` before it is told to.
struct Server {
    address: std::net::SocketAddr,
    connections: Arc<Gauge>,
    requests: Arc<Gauge>,
    answers: watch::Sender<bool>,
}

/// A number, and the highest that it was.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicUsize,
    highest: AtomicUsize,
}

impl Gauge {
    fn rise(self: &Arc<Self>) -> Counted {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.highest.fetch_max(now, Ordering::SeqCst);
        Counted(Arc::clone(self))
    }

    fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    fn highest(&self) -> usize {
        self.highest.load(Ordering::SeqCst)
    }
}

struct Counted(Arc<Gauge>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
            answers: watch::Sender::new(false),
        };
        let (connections, requests) = (
            Arc::clone(&server.connections),
            Arc::clone(&server.requests),
        );
        let answers = server.answers.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = connections.rise();
                let (requests, answers) = (Arc::clone(&requests), answers.clone());
                tokio::spawn(async move {
                    let _connection = connection;
                    let _ = serve(stream, &requests, answers).await;
                });
            }
        });
        server
    }

    fn config(&self) -> Config {
        Config::new(format!("http://{}", self.address).parse().unwrap())
    }

    /// Waits until so many requests are under way, and then a bit longer for others.
    async fn until(&self, requests: usize) {
        while self.requests.now() < requests {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: &Arc<Gauge>,
    mut answers: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        head.push(byte);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let _request = requests.rise();
        if head.starts_with(b"GET /slow") {
            let _ = answers.wait_for(|answers| *answers).await;
        }
        head.clear();
        // In two pieces: a request is under way until its body has ended.
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{")
            .await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        stream.write_all(b"}").await?;
    }
}

type Sent = tokio::task::JoinHandle<Result<crate::http::Answer, RequestError>>;

fn send(client: &Client, urgency: Urgency, count: usize) -> Vec<Sent> {
    let one = |_| {
        let client = client.clone();
        let request = crate::http::Request::get("/slow");
        tokio::spawn(async move { request.send_as(urgency, &client).await })
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn l10_a_slow_server_gets_at_most_64_requests_at_once() {
    let server = Server::start().await;
    let client = connect(server.config(), "test/1.0").unwrap();
    let watches = connect_apart(server.config(), "test/1.0").unwrap();
    let mut sent = send(&client, Urgency::Other, 300);
    server.until(CONNECTIONS - FOR_RELEASES).await;
    assert_eq!(server.requests.now(), CONNECTIONS - FOR_RELEASES);
    // Releases do not wait behind the others.
    sent.extend(send(&client, Urgency::Release, 40));
    server.until(CONNECTIONS).await;
    assert_eq!(server.requests.now(), CONNECTIONS);
    assert_eq!(server.connections.now(), CONNECTIONS);
    // Neither the Lease nor a watch waits for any of them.
    let renewed = crate::http::Request::get("/lease").send(&watches).await;
    assert!(renewed.is_ok(), "{renewed:?}");
    // With that of the other client.
    assert!(server.requests.highest() <= CONNECTIONS + 1);
    assert!(server.connections.highest() <= CONNECTIONS + 1);
    // A request that is cancelled while it waits, or while it is under way, leaves its place.
    for request in sent.iter().step_by(10) {
        request.abort();
    }
    server.answers.send_replace(true);
    for request in sent {
        match request.await {
            Ok(answer) => assert!(answer.is_ok(), "{answer:?}"),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    let most = (server.requests.highest(), server.connections.highest());
    // Seven of the cancelled ones were under way; the server may see others before it sees that
    // their connections are closed.
    assert!(most.0 <= CONNECTIONS + 1 + 7, "{most:?}");
    assert!(most.1 <= CONNECTIONS + 1 + 7, "{most:?}");
}

/// An open watch would occupy a connection for as long as it is open.
#[tokio::test]
async fn l10_streams_do_not_count() {
    let server = Server::start().await;
    let client = connect(server.config(), "test/1.0").unwrap();
    let streams = CONNECTIONS * 2;
    let mut opened = tokio::task::JoinSet::new();
    for _ in 0..streams {
        let client = client.clone();
        opened.spawn(async move { crate::http::Request::get("/slow").open(&client).await });
    }
    server.until(streams).await;
    let request = crate::http::Request::get("/lease").timeout(Duration::MAX);
    let answered = request.send(&client).await;
    assert!(answered.is_ok(), "{answered:?}");
    opened.shutdown().await;
}

/// kube's own watches and logs, which have no extension.
#[rstest]
#[case("watch=true", true)]
#[case("limit=5&watch=1", true)]
#[case("follow=true", true)]
#[case("watch=false", false)]
#[case("labelSelector=watch%3Dtrue", false)]
#[tokio::test]
async fn l10_streams_of_kube_do_not_count(#[case] query: &str, #[case] is_stream: bool) {
    let server = Server::start().await;
    let client = connect(server.config(), "test/1.0").unwrap();
    let mut opened = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS + 1 {
        let client = client.clone();
        let request = http::Request::get(format!("/slow?{query}"));
        let request = request.body(Body::empty()).unwrap();
        opened.spawn(async move { client.send(request).await });
    }
    let most = if is_stream {
        CONNECTIONS + 1
    } else {
        CONNECTIONS - FOR_RELEASES
    };
    let all = tokio::time::timeout(Duration::from_secs(10), server.until(most));
    assert!(all.await.is_ok(), "{}", server.requests.now());
    assert_eq!(server.requests.now(), most);
    opened.shutdown().await;
}

/// As client-go: no response is `<error>`, whether it did not come in time or its caller does not wait for it any more.
#[tokio::test]
async fn a_request_without_a_response_in_time_is_counted() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let server = Server::start().await;
    let client = connect(server.config(), "test/1.0").unwrap();
    let counted = |code| {
        let series = format!("rest_client_requests_total{{code={code},method=GET}}");
        recorded.counter(&series)
    };
    let durations = || recorded.samples("rest_client_request_duration_seconds{verb=GET}");

    let answer = crate::http::Request::get("/lease").send(&client).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!((counted("200"), durations().len()), (1, 1));

    let request = crate::http::Request::get("/slow").timeout(Duration::from_millis(50));
    let answer = request.send(&client).await;
    assert!(
        matches!(answer, Err(RequestError::Timeout(_))),
        "{answer:?}"
    );
    assert_eq!((counted("<error>"), counted("200")), (1, 1));
    assert!(durations()[1] >= 0.04, "{:?}", durations());

    let sent = send(&client, Urgency::Other, 1).pop().unwrap();
    server.until(1).await;
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    assert_eq!((counted("<error>"), counted("200")), (2, 1));
    assert_eq!(durations().len(), 3);
}
