#![doc = include_str!("../README.md")]

pub mod component;
pub mod config;
pub mod controller;
mod debug;
pub mod decide;
pub mod evidence;
mod explainer;
pub mod held_objects;
pub mod keys;
pub mod look;
pub mod periodic;
pub mod query;
pub mod rights;
pub mod row;
pub mod snapshot;

pub use component::{NAME, WorkflowFinalizer};
pub use config::Settings;
pub use controller::CONTROLLER;
