//! A network namespace: for a control plane and its real nodes, and for programs that listen on every address. Nothing
//! in it can reach this machine's network, and it vanishes with its last process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;

use super::place::Place;
use super::ports::free_ports;
use super::process::Process;
use crate::wait::eventually;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// The address of the Service `kubernetes`. There is no kube-proxy: the API server listens on it.
pub(super) const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The address of a real node, which all have in the same namespace.
pub(super) fn node_address(index: usize) -> Ipv4Addr {
    let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 97, 0, last)
}

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Network {
    holder: Process,
}

impl Network {
    /// Creates the namespace with the addresses of this many nodes. The command `waits` keeps it.
    /// Only root can create it.
    pub(crate) async fn create(dir: &Path, waits: &str, nodes: usize) -> Result<Self> {
        let mut addresses = vec![SERVICE];
        addresses.extend((0..nodes).map(node_address));
        let add: Vec<String> = addresses
            .iter()
            .map(|address| format!("ip address add {address}/32 dev lo"))
            .collect();
        let ready = dir.join("network-is-ready");
        let script = format!(
            "set -e; ip link set lo up; {}; echo 1 >/proc/sys/net/ipv4/ip_forward; : >{}; exec {waits}",
            add.join("; "),
            ready.display(),
        );
        let arguments = ["--net", "--", "/bin/sh", "-c", &script];
        let log = dir.join("network.log");
        let mut network = Self {
            holder: Process::start("network", Path::new("unshare"), arguments, &log)?,
        };
        let created = eventually("the network is ready", START_DEADLINE, async || {
            ensure!(ready.exists(), "not yet");
            Ok(())
        });
        let created = created.await;
        network.holder.check_running()?;
        created?;
        Ok(network)
    }

    /// The namespace, for programs.
    pub(super) fn place(&self) -> Result<Place> {
        Ok(Place::network_of(self.pid()?))
    }

    fn pid(&self) -> Result<u32> {
        self.holder
            .pid()
            .context("the network's process has exited")
    }

    /// Starts a program in it: see [`Process::start`].
    pub(crate) fn start(
        &self,
        name: &str,
        program: &Path,
        arguments: &[String],
        log: &Path,
    ) -> Result<Process> {
        self.place()?.start(name, program, arguments, log)
    }

    /// A port on this machine's loopback address that leads to an address in the namespace, until this
    /// process ends.
    pub(crate) fn relay(&self, to: SocketAddr) -> Result<u16> {
        let [port] = free_ports()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let namespace = self.namespace()?;
        // The listener stays where it was created; connections are made in the thread's namespace.
        in_thread(move || enter(&namespace), listener, to)?;
        Ok(port)
    }

    /// Makes an address of this machine lead to the same place in the namespace, until this process ends.
    pub(crate) fn let_out(&self, to: SocketAddr) -> Result<()> {
        let namespace = self.namespace()?;
        let bound = thread::spawn(move || {
            enter(&namespace)?;
            TcpListener::bind(to).with_context(|| format!("listen on {to} in the namespace"))
        });
        let listener = bound.join().ok().context("the listening thread panicked")?;
        in_thread(|| Ok(()), listener?, to)
    }

    fn namespace(&self) -> Result<File> {
        let path = format!("/proc/{}/ns/net", self.pid()?);
        File::open(&path).with_context(|| format!("open {path}"))
    }
}

/// Moves this thread into a network namespace.
fn enter(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .context("enter the network namespace")
}

/// Accepts connections, and forwards them from a thread that runs `before` first.
fn in_thread(
    before: impl FnOnce() -> Result<()> + Send + 'static,
    listener: TcpListener,
    to: SocketAddr,
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let (done, is_done) = std::sync::mpsc::channel();
    thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || {
            let prepared = before();
            let ready = prepared.is_ok();
            let _ = done.send(prepared);
            if ready {
                // Ends with the process.
                let _ = runtime.block_on(forward(listener, to));
            }
        })?;
    is_done.recv().context("the relay has ended")?
}

async fn forward(listener: TcpListener, to: SocketAddr) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let tasks = tokio::task::LocalSet::new();
    let accept = async {
        loop {
            let (mut outer, _) = listener.accept().await?;
            tokio::task::spawn_local(async move {
                // A refused connection is closed, as the server itself would.
                if let Ok(mut inner) = TcpStream::connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
                }
            });
        }
    };
    tasks.run_until(accept).await
}
