//! A proxy between Belayer and the API server, to interrupt connections or to slow them down.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The state of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    /// Forwards bytes in both directions.
    Whole,
    /// Closes all connections, and new ones at once.
    Cut,
    /// Forwards nothing: open connections hang, new ones are accepted and hang.
    Silent,
}

/// A TCP proxy on the loopback address. Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<watch::Sender<Wire>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port and connects to `server` for each connection.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        Self::slow(server, Duration::ZERO).await
    }

    /// The same with a pause before each request of a connection.
    pub async fn slow(server: SocketAddr, pause: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listen")?;
        let address = listener.local_addr()?;
        let (sender, receiver) = watch::channel(Wire::Whole);
        let task = tokio::spawn(accept(listener, server, pause, receiver));
        Ok(Self {
            address,
            wire: Arc::new(sender),
            task,
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and accepts no new ones.
    pub fn cut(&self) {
        self.wire.send_replace(Wire::Cut);
    }

    /// Lets all connections hang.
    pub fn silence(&self) {
        self.wire.send_replace(Wire::Silent);
    }

    /// Forwards new connections again. Hanging ones are closed.
    pub fn restore(&self) {
        self.wire.send_replace(Wire::Cut);
        self.wire.send_replace(Wire::Whole);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    pause: Duration,
    wire: watch::Receiver<Wire>,
) {
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(carry(connection, server, pause, wire.clone()));
    }
}

/// Forwards one connection for as long as the proxy's state does not change.
async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    pause: Duration,
    mut wire: watch::Receiver<Wire>,
) {
    let found = *wire.borrow_and_update();
    match found {
        Wire::Cut => return,
        Wire::Silent => {
            // Whatever state comes next, this connection must be closed.
            let _ = wire.changed().await;
            return;
        }
        Wire::Whole => {}
    }
    let Ok(mut upstream) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        _ = forward(&mut client, &mut upstream, pause) => return,
        _ = wire.changed() => {}
    }
    let found = *wire.borrow_and_update();
    if found == Wire::Silent {
        let _ = wire.changed().await;
    }
}

async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    pause: Duration,
) -> std::io::Result<()> {
    if pause.is_zero() {
        return tokio::io::copy_bidirectional(client, server)
            .await
            .map(drop);
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = async {
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let read = from_client.read(&mut bytes).await?;
            if read == 0 {
                return to_server.shutdown().await;
            }
            tokio::time::sleep(pause).await;
            to_server.write_all(&bytes[..read]).await?;
        }
    };
    let answers = tokio::io::copy(&mut from_server, &mut to_client);
    tokio::try_join!(requests, answers).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo_server() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = connection.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn echoed(connection: &mut TcpStream) -> bool {
        let mut byte = [0];
        let round_trip = async {
            connection.write_all(b"x").await?;
            connection.read_exact(&mut byte).await
        };
        matches!(
            tokio::time::timeout(Duration::from_millis(300), round_trip).await,
            Ok(Ok(_))
        )
    }

    #[tokio::test]
    async fn a_cut_ends_connections_and_restoring_lets_new_ones_through() {
        let proxy = Proxy::start(echo_server().await).await.unwrap();
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(echoed(&mut connection).await);
        proxy.cut();
        assert!(!echoed(&mut connection).await);
        proxy.restore();
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(echoed(&mut connection).await);
    }

    #[tokio::test]
    async fn a_silent_wire_neither_answers_nor_ends() {
        let proxy = Proxy::start(echo_server().await).await.unwrap();
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(echoed(&mut connection).await);
        proxy.silence();
        connection.write_all(b"x").await.unwrap();
        let mut byte = [0];
        let answer = tokio::time::timeout(Duration::from_millis(300), connection.read(&mut byte));
        assert!(answer.await.is_err(), "the connection ended or answered");
    }
    #[tokio::test]
    async fn a_slow_wire_pauses_before_each_request() {
        let pause = Duration::from_millis(20);
        let proxy = Proxy::slow(echo_server().await, pause).await.unwrap();
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        let started = std::time::Instant::now();
        for _ in 0..3 {
            assert!(echoed(&mut connection).await);
        }
        assert!(started.elapsed() >= 3 * pause);
    }
}
