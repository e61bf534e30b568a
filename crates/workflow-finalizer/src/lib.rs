#![doc = include_str!("../README.md")]

pub mod census;
pub mod component;
pub mod config;
pub mod decide;
pub mod evidence;
pub mod explain;
pub mod look;
pub mod question;
pub mod rights;
pub mod row;
pub mod snapshot;
pub mod steward;

pub use component::{NAME, WorkflowFinalizer};
