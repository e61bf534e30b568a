use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::Layer as _;

use super::authorization::Peer;

/// How many connections are open at once, and how many of one peer. Beyond that the oldest one is closed: a probe or
/// a scrape takes milliseconds and is never the oldest for long (T5).
const MOST: usize = 256;
pub(super) const MOST_OF_A_PEER: usize = 64;

/// How long a peer may take to send its request.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection may last.
const LASTS: Duration = Duration::from_secs(30);

/// Smallest buffer that hyper allows.
const BUFFER: usize = 8192;

/// The open connections of an endpoint. Each serves one request.
#[derive(Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    /// In the order in which they were opened.
    open: VecDeque<(IpAddr, AbortHandle)>,
}

impl Connections {
    /// Serves one request of `peer`.
    pub(super) fn serve(
        &mut self,
        stream: TcpStream,
        peer: IpAddr,
        routes: Router,
        tls: Option<Arc<ServerConfig>>,
    ) {
        self.forget_closed();
        if self.open.len() >= MOST {
            self.close_oldest(|_| true);
        } else if self.open.iter().filter(|(of, _)| *of == peer).count() >= MOST_OF_A_PEER {
            self.close_oldest(|of| of == peer);
        }
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .keep_alive(false)
            .max_buf_size(BUFFER);
        let service = TowerToHyperService::new(Extension(Peer(peer)).layer(routes));
        let connection = async move {
            let Some(tls) = tls else {
                let plain = http.serve_connection(TokioIo::new(stream), service);
                return Ok(plain.await?);
            };
            let stream = timeout(HEADERS_WITHIN, TlsAcceptor::from(tls).accept(stream)).await??;
            let encrypted = http.serve_connection(TokioIo::new(stream), service);
            Ok::<(), anyhow::Error>(encrypted.await?)
        };
        let task = self.tasks.spawn(async move {
            match timeout(LASTS, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::trace!(%peer, %error, "a connection failed"),
                Err(_) => tracing::trace!(%peer, "closed a connection that lasted too long"),
            }
        });
        self.open.push_back((peer, task));
    }

    fn forget_closed(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(_, task)| !task.is_finished());
    }

    /// Closes the oldest of these connections. Returns whether there was one.
    pub(super) fn close_oldest(&mut self, of: impl Fn(IpAddr) -> bool) -> bool {
        self.forget_closed();
        let index = self.open.iter().position(|(peer, _)| of(*peer));
        let oldest = index.and_then(|index| self.open.remove(index));
        if let Some((_, task)) = &oldest {
            task.abort();
        }
        oldest.is_some()
    }

    /// Waits until every request was answered.
    pub(super) async fn complete(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
