//! A network namespace for a control plane and its real nodes. Nothing in it can reach this machine's
//! network, and it vanishes with its last process.

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

const START_DEADLINE: Duration = Duration::from_secs(10);

/// The address of the Service `kubernetes`. There is no kube-proxy: the API server listens on it.
pub(super) const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The address of a real node, which all have in the same namespace.
pub(super) fn node_address(index: usize) -> Ipv4Addr {
    let last = u8::try_from(index + 1).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 97, 0, last)
}

/// A network namespace.
#[derive(Debug)]
pub(super) struct Network {
    holder: Process,
}

impl Network {
    /// Creates the namespace with the addresses of this many nodes.
    pub(super) async fn create(dir: &Path, pause: &Path, nodes: usize) -> Result<Self> {
        let mut addresses = vec![SERVICE];
        addresses.extend((0..nodes).map(node_address));
        let add: Vec<String> = addresses
            .iter()
            .map(|address| format!("ip address add {address}/32 dev lo"))
            .collect();
        let ready = dir.join("network-is-ready");
        let script = format!(
            "set -e; ip link set lo up; {}; echo 1 >/proc/sys/net/ipv4/ip_forward; : >{}; exec {}",
            add.join("; "),
            ready.display(),
            pause.display(),
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

    /// A port on this machine's loopback address that leads to an address in the namespace, until this
    /// process ends.
    pub(super) fn relay(&self, to: SocketAddr) -> Result<u16> {
        let [port] = free_ports()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let namespace = File::open(format!("/proc/{}/ns/net", self.pid()?))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let (entered, has_entered) = std::sync::mpsc::channel();
        thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || {
                // The listener stays where it was created; connections are made in the thread's namespace.
                let enter =
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
                drop(namespace);
                let ready = enter.is_ok();
                let _ = entered.send(enter);
                if ready {
                    // Ends with the process.
                    let _ = runtime.block_on(forward(listener, to));
                }
            })?;
        has_entered
            .recv()
            .context("the relay has ended")?
            .context("enter the network namespace")?;
        Ok(port)
    }
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
