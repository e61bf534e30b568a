#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! [`control_plane`] runs a real Kubernetes control plane on one machine without containers;
//! [`providers`] start clusters; [`harness`] has the building blocks of scenarios; [`scenarios`] is the
//! list; [`conformance`] compares the responses that clients get. The benchmarks are a separate
//! program (`bench`).

mod chaos;
mod chart;
pub mod cli;
pub mod conformance;
pub mod control_plane;
mod earlier;
mod go;
mod guard;
pub mod harness;
pub mod kinds;
mod kubectl;
mod load;
mod output;
pub mod peers;
mod progress;
pub mod providers;
pub mod scenarios;
mod stuck;
mod third_party;
mod wait;

/// Whether this is continuous integration, where a missing prerequisite is a failure and not a skip.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
