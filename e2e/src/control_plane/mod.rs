//! A real Kubernetes control plane on one machine, without containers.
//!
//! [`Binaries`] finds or builds the programs, [`ControlPlane`] runs them: every port is picked free on
//! the loopback address, everything lives in one temporary folder, every program is a child of the
//! process that started it, dies with it and is stopped by its own id. Any number of control planes
//! can run side by side.

mod binaries;
mod cache;
mod certificates;
mod kubeconfig;
mod manager;
mod options;
mod plane;
pub mod ports;
mod process;
mod rights;
mod starter;
mod users;

pub use self::binaries::{Binaries, BuildError, Program};
pub use self::cache::cache_dir;
pub use self::kubeconfig::Kubeconfig;
pub(crate) use self::kubeconfig::client;
pub use self::manager::ClaimController;
pub use self::options::{Beside, Options};
pub use self::plane::ControlPlane;
pub use self::process::Process;
pub use self::rights::{node_agent_kubeconfig, service_account_kubeconfig};
