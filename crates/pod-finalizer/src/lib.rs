#![doc = include_str!("../README.md")]

pub mod argo;
pub mod backlog;
pub mod census;
pub mod cleanup;
pub mod component;
pub mod controller;
mod debug;
pub mod decide;
pub mod evidence;
pub mod explain;
mod explainer;
pub mod keys;
mod observe;
pub mod outcome;
pub mod profile;
pub mod question;
pub mod rights;
pub mod row;
pub mod snapshot;
pub mod status;
pub mod steward;

pub use component::{NAME, PodFinalizer};
pub use controller::CONTROLLER;
pub use profile::config::Settings;
