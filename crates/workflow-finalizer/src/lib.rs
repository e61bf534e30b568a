#![doc = include_str!("../README.md")]

mod component;
pub mod config;
mod controller;
mod debug;
pub mod decide;
pub mod evidence;
mod explainer;
mod held_objects;
mod keys;
mod periodic;
pub mod permissions;
pub mod pods_query;
pub mod query;
pub mod row;
pub mod snapshot;

pub use component::{NAME, WorkflowFinalizer};
pub use config::Settings;
pub use controller::CONTROLLER;
