#![doc = include_str!("../README.md")]

pub mod api;
pub mod carry;
pub mod component;
pub mod config;
pub mod controller;
pub mod crd;
mod debug;
pub mod decide;
pub mod eligible;
pub mod evidence;
mod explain;
mod explainer;
pub mod holds;
pub mod keys;
pub mod permissions;
pub mod proof;
pub mod reason;
pub mod record;
pub mod recreations;
pub mod row;
pub mod snapshot;
pub mod storm;
pub mod transitions;

pub use component::PodRecreation;
pub use config::Settings;
pub use controller::CONTROLLER;

/// Name of the component: in `--controllers`, in metrics, in logs.
pub const NAME: &str = "pod-recreation";
