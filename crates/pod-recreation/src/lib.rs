#![doc = include_str!("../README.md")]

pub mod api;
mod component;
pub mod config;
mod controller;
pub mod crd;
mod debug;
pub mod decide;
pub mod eligible;
pub mod evidence;
mod explainer;
pub mod holds;
mod keys;
pub mod permissions;
pub mod proof;
pub mod query;
pub mod rate_limit;
pub mod reason;
pub mod record;
pub mod recreations;
mod replacement_pod;
pub mod row;
pub mod snapshot;
pub mod transitions;
mod wipes;

pub use component::PodRecreation;
pub use config::Settings;
pub use controller::CONTROLLER;

/// Name of the component: in `--controllers`, in metrics, in logs.
pub const NAME: &str = "pod-recreation";

/// The key of the gate that switches its holds on and off.
pub(crate) const SWITCH: &str = "holdRecreations";
