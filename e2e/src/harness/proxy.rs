//! A proxy between Belayer and the API server, to interrupt connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
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
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listen")?;
        let address = listener.local_addr()?;
        let (sender, receiver) = watch::channel(Wire::Whole);
        let task = tokio::spawn(accept(listener, server, receiver));
        Ok(Self {
            address,
            wire: Arc::new(sender),
            task,
        })
    }

    /// Its address.
    #[must_use]
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

async fn accept(listener: TcpListener, server: SocketAddr, wire: watch::Receiver<Wire>) {
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(carry(connection, server, wire.clone()));
    }
}

/// Forwards one connection for as long as the proxy's state does not change.
async fn carry(mut client: TcpStream, server: SocketAddr, mut wire: watch::Receiver<Wire>) {
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
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => return,
        _ = wire.changed() => {}
    }
    let found = *wire.borrow_and_update();
    if found == Wire::Silent {
        let _ = wire.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
}
