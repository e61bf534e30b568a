//! A real Kubernetes control plane on one machine, without containers.
//!
//! [`Binaries`] finds or builds the programs, [`ControlPlane`] runs them. All ports are free ports on
//! the loopback address, all files are in one temporary folder, and every program is a child of the
//! process that started it, is killed with it and is stopped by its own process id. Any number of
//! control planes can run at the same time.
//!
//! With [`RealNodes`] everything runs in a network namespace of its own, pods are real containers, and only one
//! such cluster runs on a machine at a time.

mod binaries;
mod cache;
mod certificates;
mod compact;
mod kubeconfig;
mod kubernetes;
mod manager;
mod network;
mod node;
mod options;
mod permissions;
mod place;
mod plane;
pub mod ports;
mod process;
mod program;
mod starter;
mod users;

pub(crate) use self::binaries::is_installed;
pub use self::binaries::{ArgoBinaries, Binaries, BuildError, HelmBinaries, NodeBinaries};
pub use self::cache::cache_dir;
pub use self::kubeconfig::Kubeconfig;
pub(crate) use self::kubeconfig::client;
pub use self::kubernetes::Kubernetes;
pub use self::manager::PvcController;
pub(crate) use self::network::Network;
pub use self::node::{
    Container, FOLDER, RealNode, RealNodes, STEP_IMAGE, cgroups_left, folders_left,
    lock as lock_nodes, processes_of_nodes, remove_leftovers, write_images,
};
pub use self::options::{Options, OtherPrograms};
pub use self::permissions::{node_agent_kubeconfig, service_account_kubeconfig};
pub use self::plane::ControlPlane;
pub use self::process::Process;
pub(crate) use self::process::dies_with_parent;
pub use self::program::Program;
pub use compact::{Compactor, compactor_beside};
