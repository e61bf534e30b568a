#![doc = include_str!("../README.md")]

mod argo;
mod backlog;
mod cleanup;
mod component;
mod controller;
mod debug;
pub mod decide;
pub mod evidence;
mod explainer;
mod held_objects;
mod keys;
pub mod outcome;
mod periodic;
pub mod permissions;
pub mod profile;
pub mod query;
pub mod row;
pub mod snapshot;
pub mod status;

pub use component::PodFinalizer;

pub use controller::CONTROLLER;
pub use profile::config::Settings;

/// Name of the component: in `--controllers`, in metrics, in logs.
pub const NAME: &str = "pod-finalizer";

/// After a start, this much of a grace period and of `releaseAfter` is waited for by the process's own clock: the wall clock
/// of a machine that has just started may be wrong.
pub(crate) const SETTLE: std::time::Duration = std::time::Duration::from_mins(10);
