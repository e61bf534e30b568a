#![doc = include_str!("../README.md")]
//!
//! ## The house
//!
//! [`control_plane`] runs a real Kubernetes control plane on one machine without containers;
//! [`providers`] are the ways to have a cluster; [`harness`] is what a scenario works with;
//! [`scenarios`] is the list; [`conformance`] compares what clients see; [`bench`] measures.

pub mod bench;
pub mod cli;
pub mod conformance;
pub mod control_plane;
mod go;
pub mod harness;
mod kinds;
pub mod peers;
mod progress;
pub mod providers;
pub mod scenarios;
pub mod types;
