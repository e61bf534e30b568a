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
pub mod periodic;
pub mod permissions;
pub mod pods_query;
pub mod query;
pub mod row;
pub mod snapshot;

pub use component::{NAME, WorkflowFinalizer};
pub use config::Settings;
pub use controller::CONTROLLER;
