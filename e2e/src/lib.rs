#![doc = include_str!("../README.md")]
//!
//! ## The house
//!
//! [`control_plane`] runs a real Kubernetes control plane on one machine without containers;
//! [`providers`] are the ways to have a cluster; [`harness`] is what a scenario works with;
//! [`scenarios`] is the list; [`conformance`] compares what clients see. The benchmarks are a
//! program of their own (`bench`).

pub mod cli;
pub mod conformance;
pub mod control_plane;
mod go;
pub mod harness;
pub mod kinds;
pub mod peers;
mod progress;
pub mod providers;
pub mod scenarios;
mod stuck;

/// Whether this is continuous integration: what cannot be tested there is a failure, not a skip.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
