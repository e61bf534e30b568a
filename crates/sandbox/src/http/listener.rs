//! A loopback listener: HTTP/1.1 and cleartext HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{SandboxService, Server};

/// A running listener; dropping it closes the port and every connection.
///
/// ```no_run
/// use belayer_sandbox::Sandbox;
///
/// # async fn serve() -> std::io::Result<()> {
/// let listener = Sandbox::default().listen_anywhere().await?;
/// println!("{}", listener.kubeconfig());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    addr: SocketAddr,
    _stop: DropGuard,
}

impl Listener {
    pub(crate) async fn bind(server: Arc<Server>, addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(addr).await?;
        let addr = socket.local_addr()?;
        let stop = CancellationToken::new();
        tokio::spawn(accept(socket, server, stop.clone()));
        Ok(Listener {
            addr,
            _stop: stop.drop_guard(),
        })
    }

    /// The listening address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A kubeconfig, in YAML; requests are recorded under the client's user agent.
    pub fn kubeconfig(&self) -> String {
        self.render("{}")
    }

    /// A kubeconfig whose requests have this client name, in the recorder and for faults. It is also the user's name;
    /// `system:serviceaccount:NAMESPACE:NAME@NODE` is an account whose token names a node.
    pub fn kubeconfig_for(&self, user: &str) -> String {
        // A JSON string is a YAML string.
        let token = serde_json::Value::from(format!("user:{user}"));
        self.render(&format!("{{token: {token}}}"))
    }

    fn render(&self, user: &str) -> String {
        // JavaScript's client refuses plain HTTP without the permission not to verify.
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: sandbox\n  cluster: {{server: \"{}\", insecure-skip-tls-verify: true}}\n\
             users:\n\
             - name: sandbox\n  user: {user}\n\
             contexts:\n\
             - name: sandbox\n  context: {{cluster: sandbox, user: sandbox, namespace: default}}\n\
             current-context: sandbox\n",
            self.url()
        )
    }
}

async fn accept(socket: TcpListener, server: Arc<Server>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            // Closed at once: the client sees a broken connection.
            Ok((stream, _)) if !server.faults.is_available() => drop(stream),
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&server), stop.clone()));
            }
            Err(error) => {
                tracing::debug!(%error, "accept failed");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, server: Arc<Server>, stop: CancellationToken) {
    // Events are small and must not wait for a full packet.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(SandboxService::new(server, None));
    let builder = Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = stop.cancelled() => {}
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "connection ended");
        },
    }
}
