//! L6: servers that are unreachable, that do not respond, that stop responding, that return errors. Each command
//! reports that it waits, and each ends.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// The behaviour of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// Refuses connections.
    Refuses,
    /// Accepts connections and sends nothing.
    Silent,
    /// Serves discovery, and nothing more.
    FallsSilent,
    /// Returns 503 to every request.
    OutOfOrder,
    /// Returns 404 to every request, as any web server.
    Elsewhere,
    /// Returns 400 to every request, as a server that expects TLS.
    ExpectsTls,
}

impl Server {
    async fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        if self != Self::Refuses {
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(self.serve(stream));
                }
            });
        }
        address
    }

    /// A minimal HTTP/1.1 server.
    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
                head.push_str(&line);
                line.clear();
            }
            let path = head.split(' ').nth(1).unwrap_or_default();
            let Some((status, body)) = self.answer(path) else {
                // Until the client closes the connection.
                let _ = stream.read_to_end(&mut Vec::new()).await;
                return;
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            if head.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(self, path: &str) -> Option<(&'static str, String)> {
        let answer = match (self, path) {
            (Self::OutOfOrder, _) => {
                let status = json!({
                    "kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": "not today",
                });
                return Some(("503 Service Unavailable", status.to_string()));
            }
            (Self::Elsewhere, _) => return Some(("404 Not Found", "not here".to_owned())),
            (Self::ExpectsTls, _) => {
                return Some(("400 Bad Request", EXPECTS_TLS.to_owned()));
            }
            (Self::FallsSilent, "/version") => json!({ "gitVersion": "v1.36.0" }),
            (Self::FallsSilent, "/api") => json!({ "kind": "APIVersions", "versions": ["v1"] }),
            (Self::FallsSilent, "/apis") => json!({ "kind": "APIGroupList", "groups": [] }),
            (Self::FallsSilent, "/api/v1") => json!({ "kind": "APIResourceList", "resources": [
                { "name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["list", "get"] },
            ]}),
            _ => return None,
        };
        Some(("200 OK", answer.to_string()))
    }
}

const EXPECTS_TLS: &str = "Client sent an HTTP request to an HTTPS server.";

struct Said {
    code: Option<i32>,
    err: String,
    took: Duration,
    /// Time of the first line on standard error.
    first: Duration,
}

/// Runs the built binary against a server.
async fn run(server: SocketAddr, arguments: &[&str]) -> Said {
    run_as(json!([{ "name": "u", "user": {} }]), server, arguments).await
}

/// Runs it with these users in the kubeconfig; its context names the user `u`.
async fn run_as(users: Value, server: SocketAddr, arguments: &[&str]) -> Said {
    let dir = TempDir::new().unwrap();
    let kubeconfig = dir.path().join("config");
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{server}") } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": users,
    });
    std::fs::write(&kubeconfig, document.to_string()).unwrap();
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_belayer"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (mut err, mut first) = (String::new(), None);
    while let Some(line) = lines.next_line().await.unwrap() {
        first.get_or_insert_with(|| begun.elapsed());
        err.push_str(&line);
        err.push('\n');
    }
    let status = child.wait().await.unwrap();
    Said {
        code: status.code(),
        err,
        took: begun.elapsed(),
        first: first.unwrap_or_default(),
    }
}

/// Time that a process may need beyond the documented limits on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

#[rstest]
#[case::refused(Server::Refuses, "Connection refused")]
#[case::silent(Server::Silent, "no response")]
#[case::out_of_order(Server::OutOfOrder, "503")]
#[tokio::test(flavor = "multi_thread")]
async fn l6_drain_reports_the_server_that_it_waits_for_and_ends(
    #[case] server: Server,
    #[case] cause: &str,
) {
    let address = server.start().await;
    for arguments in [
        &["drain", "--timeout=4s"][..],
        &["drain", "--resume", "--timeout=4s"],
    ] {
        let said = run(address, arguments).await;
        assert!(
            said.took >= Duration::from_secs(4),
            "it tries again: {:?}",
            said.took
        );
        let is_resume = arguments.contains(&"--resume");
        let not_ended = "draining was not ended: run `belayer drain --resume` again";
        assert_eq!(said.err.contains(not_ended), is_resume, "{}", said.err);
        assert_eq!(said.code, Some(1), "{}", said.err);
        let first = said.err.lines().next().unwrap_or_default();
        assert!(first.contains(&address.to_string()), "{}", said.err);
        assert!(first.contains(cause), "{}", said.err);
        assert!(
            said.first < Duration::from_secs(2) + SLACK,
            "{:?}",
            said.first
        );
        assert!(
            said.took < Duration::from_secs(4) + SLACK,
            "{:?}",
            said.took
        );
        named_once(&said, address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l6_drain_ends_when_the_server_stops_responding() {
    let address = Server::FallsSilent.start().await;
    let said = run(address, &["drain", "--timeout=3s"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.took >= Duration::from_secs(3), "{:?}", said.took);
    assert!(
        said.took < Duration::from_secs(6) + SLACK,
        "{:?}",
        said.took
    );
}

/// The last line is the error, with the address once and the cause once.
fn named_once(said: &Said, address: SocketAddr) {
    let last = said.err.lines().last().unwrap_or_default();
    let times = |text: &str| last.matches(text).count();
    assert_eq!(times(&address.to_string()), 1, "{}", said.err);
    // The port may contain the status code.
    let causes = last.replace(&address.to_string(), "");
    for cause in ["refused", "no response", "503"] {
        assert!(causes.matches(cause).count() <= 1, "{}", said.err);
    }
    assert!(last.starts_with("error:"), "{}", said.err);
}

/// The commands that only read.
const READING: [&[&str]; 6] = [
    &["stuck"],
    &["stuck", "-n", "shop"],
    &["explain", "pod/a"],
    &["status"],
    &["status", "-n", "shop"],
    &["check"],
];

#[rstest]
#[case::refused(Server::Refuses, "Connection refused", 5)]
#[case::silent(Server::Silent, "no response", 10)]
#[case::out_of_order(Server::OutOfOrder, "503", 5)]
#[tokio::test(flavor = "multi_thread")]
async fn l6_reading_commands_end_with_the_address_and_the_cause(
    #[case] server: Server,
    #[case] cause: &str,
    #[case] seconds: u64,
) {
    let address = server.start().await;
    let all = READING.map(|arguments| run(address, arguments));
    for (said, arguments) in futures::future::join_all(all).await.iter().zip(READING) {
        assert_eq!(said.code, Some(1), "{arguments:?}: {}", said.err);
        let last = said.err.lines().last().unwrap_or_default();
        assert!(last.contains(cause), "{arguments:?}: {}", said.err);
        let within = Duration::from_secs(seconds) + SLACK;
        assert!(said.took < within, "{arguments:?}: {:?}", said.took);
        named_once(said, address);
    }
}

/// A wrong path or scheme in the address of the server, or any web server: nothing is known about the cluster.
#[rstest]
#[case::not_found(Server::Elsewhere, "is not a Kubernetes API server (404)")]
#[case::bad_request(Server::ExpectsTls, EXPECTS_TLS)]
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_api_server_is_an_error(#[case] server: Server, #[case] why: &str) {
    let address = server.start().await;
    let drain: &[&str] = &["drain", "--timeout=4s"];
    let commands: Vec<_> = READING.into_iter().chain([drain]).collect();
    let all = commands.iter().map(|arguments| run(address, arguments));
    for (said, arguments) in futures::future::join_all(all).await.iter().zip(&commands) {
        assert_eq!(said.code, Some(1), "{arguments:?}: {}", said.err);
        let last = said.err.lines().last().unwrap_or_default();
        let is_named = last.contains(&format!("http://{address} ")) && last.contains(why);
        assert!(is_named, "{arguments:?}: {}", said.err);
    }
}

#[rstest]
#[case::a_missing_plugin(
    json!([{ "name": "u", "user": { "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "interactiveMode": "Never",
    } } }]),
    "cannot run the credential plugin \"no-such-plugin\" of the kubeconfig: No such file"
)]
#[case::a_plugin_that_fails(
    json!([{ "name": "u", "user": { "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never",
        "env": [{ "name": "PASSWORD", "value": "secret" }],
    } } }]),
    "the credential plugin \"false\" of the kubeconfig failed: exit status: 1"
)]
#[case::a_missing_token_file(
    json!([{ "name": "u", "user": { "tokenFile": "/nowhere/token" } }]),
    "cannot read the token file /nowhere/token: No such file"
)]
#[case::an_empty_token_file(
    json!([{ "name": "u", "user": { "tokenFile": "/dev/null" } }]),
    "cannot read the token file /dev/null: it is empty"
)]
#[case::a_missing_user(
    json!([{ "name": "other", "user": {} }]),
    "the context \"c\" names the user \"u\", which does not exist"
)]
#[tokio::test(flavor = "multi_thread")]
async fn unusable_credentials_are_named_once(#[case] users: Value, #[case] says: &str) {
    let address = Server::Silent.start().await;
    for arguments in [&["stuck"], &["drain"]] {
        let said = run_as(users.clone(), address, arguments).await;
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains(says), "{}", said.err);
        for once in ["No such file", "exit status", "token file"] {
            assert!(said.err.matches(once).count() <= 1, "{}", said.err);
        }
        assert!(!said.err.contains("secret"), "{}", said.err);
    }
}
