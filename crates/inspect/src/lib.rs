#![doc = include_str!("../README.md")]

pub mod argo;
mod contact;
mod controller_health;
mod diagnose;
mod evidence;
pub mod explain;
mod inspector;
pub mod kinds;
pub mod known_finalizers;
mod object;
pub mod preflight;
pub mod reader;
pub mod report;
pub mod scan;
#[cfg(test)]
mod schemas;
pub mod status;
pub mod stuck;
pub mod text;
mod untrusted;

mod details;

pub use explain::{Explained, Explainer, Explanation};
pub use inspector::Inspector;
pub use known_finalizers::{KNOWN_FINALIZERS, KnownFinalizers};
pub use reader::{ReadResult, Reader};
pub use report::{Cause, Group, Report, Step, StuckObject, Verdict};
pub use scan::Scope;
pub use stuck::{InspectError, Query};
