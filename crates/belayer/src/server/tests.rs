use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use belayer_core::logged::Log;
use belayer_metrics::exposition;
use parking_lot::Mutex;
use rstest::rstest;
use rustix::io::Errno;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::connections::MOST_OF_A_PEER;
use super::routes::Rendered;
use super::*;

#[rstest]
#[case::too_many_files(Errno::MFILE, true)]
#[case::too_many_files_of_all(Errno::NFILE, true)]
#[case::no_memory(Errno::NOMEM, true)]
#[case::a_client_that_is_gone(Errno::CONNABORTED, false)]
#[case::a_network_error(Errno::NETUNREACH, false)]
fn t5_only_exhaustion_delays_the_next_connection(#[case] error: Errno, #[case] delays: bool) {
    assert_eq!(is_exhausted(&error.into()), delays);
}

#[test]
fn t5_exhaustion_is_logged_once() {
    let log = Log::kept_from(tracing::Level::WARN);
    let mut exhaustion = Exhaustion::default();
    for _ in 0..3 {
        exhaustion.report(([127, 0, 0, 1], 80).into(), &Errno::MFILE.into());
    }
    let says = "cannot accept connections at 127.0.0.1:80: Too many open files (os error 24); raise the limit of open files";
    assert_eq!(log.lines(says).len(), 1, "{}", log.text());
    assert_eq!(log.lines("WARN").len(), 1, "{}", log.text());
}

/// Without descriptors the next connection takes the place of the oldest one.
#[tokio::test]
async fn t5_the_oldest_connection_makes_room() {
    let any = "127.0.0.1:0".parse().unwrap();
    let endpoint = Endpoint::bind(&any, "--test").await.unwrap().unwrap();
    let address = endpoint.address();
    let (listener, _) = endpoint.into_parts();
    let mut connections = Connections::default();
    assert!(!connections.close_oldest(|_| true), "there is none");
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(TcpStream::connect(address).await.unwrap());
        let (stream, peer) = listener.accept().await.unwrap();
        connections.serve(stream, peer.ip(), public(Arc::default()), None);
    }
    assert!(connections.close_oldest(|_| true));
    let [oldest, newest] = &mut clients[..] else {
        unreachable!()
    };
    let mut byte = [0];
    let ended = timeout(Duration::from_secs(10), oldest.read(&mut byte)).await;
    assert!(matches!(ended.unwrap(), Ok(0) | Err(_)));
    let waits = timeout(Duration::from_millis(100), newest.read(&mut byte)).await;
    assert!(waits.is_err(), "the newest one is open");
}

#[derive(Default)]
struct Scripted {
    not_ready: Mutex<Vec<String>>,
    wedged: Mutex<Vec<String>>,
}

impl Health for Scripted {
    fn not_ready(&self) -> Vec<String> {
        self.not_ready.lock().clone()
    }

    fn wedged(&self) -> Vec<String> {
        self.wedged.lock().clone()
    }
}

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn start(routes: Router) -> Running {
    let any = "127.0.0.1:0".parse().unwrap();
    let endpoint = Endpoint::bind(&any, "--test").await.unwrap().unwrap();
    let (address, stop) = (endpoint.address(), CancellationToken::new());
    let task = tokio::spawn(serve(endpoint, routes, stop.clone()));
    Running {
        address,
        stop,
        task,
    }
}

/// Head and body of the response.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    ask_host("x", address, method, path).await
}

/// [`ask`] with this `Host` header.
async fn ask_host(host: &str, address: SocketAddr, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

fn public(health: Arc<Scripted>) -> Router {
    let (_, exporter) = Exporter::detached().unwrap();
    public_routes(health, Arc::new(exporter), None)
}

#[tokio::test]
async fn probes_name_what_is_wrong() {
    let health = Arc::new(Scripted::default());
    let server = start(public(health.clone())).await;
    for path in ["/livez", "/readyz"] {
        let (head, body) = ask(server.address, "GET", path).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(body, "ok\n");
    }
    *health.not_ready.lock() = vec!["informer pods".into(), "informer workflows".into()];
    let (head, body) = ask(server.address, "GET", "/readyz").await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(
        body,
        "not ready: informer pods\nnot ready: informer workflows\n"
    );
    let (head, _) = ask(server.address, "GET", "/livez").await;
    assert!(
        head.starts_with("http/1.1 200"),
        "not ready is no reason to be restarted"
    );
    *health.wedged.lock() = vec!["a worker of pods, for 900s".into()];
    let (head, body) = ask(server.address, "GET", "/livez").await;
    assert!(head.starts_with("http/1.1 500"), "{head}");
    assert_eq!(body, "wedged: a worker of pods, for 900s\n");
}

#[tokio::test]
async fn metrics_are_scraped() {
    let server = start(public(Arc::default())).await;
    let (recorder, exporter) = Exporter::detached().unwrap();
    metrics::with_local_recorder(&recorder, || {
        metrics::counter!(belayer_metrics::HOLDS_ADDED, "controller" => "x").increment(2);
    });
    let counted = start(public_routes(
        Arc::new(Scripted::default()),
        Arc::new(exporter),
        None,
    ))
    .await;
    let (head, body) = ask(counted.address, "GET", "/metrics").await;
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    let families = exposition::parse(&body).unwrap();
    let added = &families["belayer_holds_added_total"];
    assert_eq!(added.value(&[("controller", "x")]), Some(2.0));
    let (_, body) = ask(server.address, "GET", "/metrics").await;
    assert!(
        exposition::parse(&body).unwrap().is_empty(),
        "each exporter has its own"
    );
}

#[tokio::test]
async fn holds_are_json() {
    let holds = || json!({"holds": [{"pod": "shop/web-0"}]});
    let endpoint = SocketAddr::from(([127, 0, 0, 1], 8081));
    let server = start(debug_routes(endpoint, Arc::new(holds))).await;
    let (head, body) = ask_host("localhost:8081", server.address, "GET", "/debug/holds").await;
    assert!(head.contains("content-type: application/json"), "{head}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["holds"][0]["pod"], "shop/web-0");
    let (head, body) = ask_host("belayer.example.com", server.address, "GET", "/debug/holds").await;
    assert!(head.starts_with("http/1.1 403"), "{head}");
    assert!(!body.contains("web-0"), "{body}");
}

#[rstest]
#[case::names_of_pods_are_not_public("GET", "/debug/holds", "404")]
#[case::nothing_at_the_root("GET", "/", "404")]
#[case::read_only("POST", "/metrics", "405")]
#[tokio::test]
async fn there_is_nothing_else(#[case] method: &str, #[case] path: &str, #[case] status: &str) {
    let server = start(public(Arc::default())).await;
    let (head, _) = ask(server.address, method, path).await;
    assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
}

#[tokio::test]
async fn an_open_connection_does_not_delay_the_end() {
    let server = start(public(Arc::default())).await;
    // Sends half a request and then nothing.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n")
        .await
        .unwrap();
    // A response on another connection proves that the first one was accepted.
    ask(server.address, "GET", "/livez").await;
    server.stop.cancel();
    tokio::time::timeout(STOP_WITHIN * 3, server.task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn t5_idle_connections_do_not_keep_others_out() {
    let server = start(public(Arc::default())).await;
    let mut idle = Vec::new();
    for _ in 0..MOST_OF_A_PEER * 3 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    let (head, _) = ask(server.address, "GET", "/livez").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    // The oldest ones were closed.
    for stream in &mut idle[..MOST_OF_A_PEER * 2] {
        let end = timeout(Duration::from_secs(10), stream.read_u8()).await;
        assert!(end.unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn t5_a_connection_that_sends_no_request_is_closed() {
    let server = start(public(Arc::default())).await;
    for sent in ["", "GET /livez HTTP/1.1\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let begun = tokio::time::Instant::now();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn t5_simultaneous_scrapes_are_rendered_once() {
    let renders = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&renders);
    let rendered = Rendered::new(move || {
        let before = counted.fetch_add(1, Ordering::Relaxed);
        format!("render {before}")
    });
    let all = futures::future::join_all((0..100).map(|_| rendered.get())).await;
    assert!(all.iter().all(|text| text.as_ref().unwrap() == "render 0"));
    assert_eq!(renders.load(Ordering::Relaxed), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(rendered.get().await.unwrap(), "render 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_clients_that_hang_up_start_no_second_rendering_beside_the_first() {
    let (renders, (go_on, wait)) = (Arc::new(AtomicUsize::new(0)), std::sync::mpsc::channel());
    let (counted, wait) = (Arc::clone(&renders), parking_lot::Mutex::new(wait));
    let rendered = Arc::new(Rendered::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let _: Result<(), _> = wait.lock().recv();
        String::new()
    }));
    let hangs_up = async || {
        let request = Arc::clone(&rendered);
        let request = tokio::spawn(async move { request.get().await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        request.abort();
        let _ = request.await;
    };
    while renders.load(Ordering::Relaxed) == 0 {
        hangs_up().await;
    }
    hangs_up().await;
    hangs_up().await;
    assert_eq!(renders.load(Ordering::Relaxed), 1);
    drop(go_on);
    rendered.get().await.unwrap();
}

#[tokio::test]
async fn probes_have_an_address_of_their_own() {
    let server = start(probe_routes(Arc::<Scripted>::default())).await;
    let (head, _) = ask(server.address, "GET", "/readyz").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (head, _) = ask(server.address, "GET", "/metrics").await;
    assert!(head.starts_with("http/1.1 404"), "{head}");
}

/// A certificate of 127.0.0.1 for `tls`, and its authority for a client.
fn certificate(dir: &Path) -> (CertificateFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let files = CertificateFiles {
        certificate: dir.join("tls.crt"),
        key: dir.join("tls.key"),
    };
    fs::write(&files.certificate, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    (files, made.cert.der().clone())
}

/// The answer over TLS, if the server has this certificate.
async fn ask_tls(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    path: &str,
) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    let mut stream = TlsConnector::from(Arc::new(client))
        .connect(name, stream)
        .await?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .await?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer).await {
        // Servers of HTTP end a connection without a last word of TLS.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

#[tokio::test]
async fn t5_a_renewed_certificate_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let (files, first) = certificate(dir.path());
    let tls = Tls::read(files).await.unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let endpoint = Endpoint::bind(&any, "--test")
        .await
        .unwrap()
        .unwrap()
        .with_tls(&tls);
    let (address, stop) = (endpoint.address(), CancellationToken::new());
    let routes = public(Arc::default());
    tokio::spawn(serve(endpoint, routes, stop.clone()));
    let answer = ask_tls(address, &first, "/livez").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let plain = timeout(Duration::from_secs(10), async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    });
    assert!(!plain.await.unwrap().starts_with(b"HTTP"), "without TLS");
    // Half of a renewal: the previous certificate stays.
    fs::write(dir.path().join("tls.key"), "").unwrap();
    let mut tls = tls;
    tls.renewed().await.unwrap_err();
    ask_tls(address, &first, "/livez").await.unwrap();
    let (_, second) = certificate(dir.path());
    assert!(tls.renewed().await.unwrap());
    assert!(!tls.renewed().await.unwrap());
    ask_tls(address, &second, "/livez").await.unwrap();
    ask_tls(address, &first, "/livez").await.unwrap_err();
    stop.cancel();
}

/// What `run` and `node-agent` do with their flags.
#[tokio::test]
async fn t5_a_protected_endpoint_is_served_by_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (files, trusted) = certificate(dir.path());
    let protection = Protection {
        certificate: Some(files),
        authorization: true,
    };
    let client = belayer_sandbox::Sandbox::default().client();
    let protected = protection.read(&client).await.unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let endpoint = Endpoint::bind(&any, "--test").await.unwrap().unwrap();
    let (address, stop) = (endpoint.address(), CancellationToken::new());
    let (_, exporter) = Exporter::detached().unwrap();
    let health: Arc<dyn Health> = Arc::new(Scripted::default());
    let mut tasks = JoinSet::new();
    protected.serve(endpoint, health, Arc::new(exporter), &mut tasks, &stop);
    let answer = ask_tls(address, &trusted, "/livez").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask_tls(address, &trusted, "/metrics").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    stop.cancel();
    while tasks.join_next().await.is_some() {}
}

#[rstest]
#[case::no_file(None, "cannot read")]
#[case::no_certificate(Some(""), "tls.crt")]
#[case::no_pem(Some("no PEM"), "tls.crt")]
#[tokio::test]
async fn a_certificate_that_cannot_be_used_names_the_file(
    #[case] certificate_file: Option<&str>,
    #[case] named: &str,
) {
    let dir = tempfile::tempdir().unwrap();
    let (files, _) = certificate(dir.path());
    match certificate_file {
        Some(text) => fs::write(&files.certificate, text).unwrap(),
        None => fs::remove_file(&files.certificate).unwrap(),
    }
    let error = Tls::read(files).await.unwrap_err().to_string();
    assert!(
        error.contains(named) && error.contains("tls.crt"),
        "{error}"
    );
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused() {
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (files, _) = certificate(one.path());
    let (others, _) = certificate(other.path());
    let mixed = CertificateFiles {
        certificate: files.certificate,
        key: others.key,
    };
    let error = Tls::read(mixed).await.unwrap_err().to_string();
    assert!(error.contains("cannot be used"), "{error}");
}
