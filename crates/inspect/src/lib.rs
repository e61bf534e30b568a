#![doc = include_str!("../README.md")]

pub mod argo;
mod contact;
pub mod controller_health;
pub mod diagnose;
pub mod evidence;
pub mod explain;
pub mod kinds;
pub mod known_finalizers;
pub mod object;
pub mod preflight;
pub mod reader;
pub mod report;
pub mod scan;
pub mod selector;
pub mod status;
pub mod stuck;
pub mod text;

mod details;

pub use explain::{Explained, Explainer};
pub use reader::{ReadResult, Reader};
pub use report::Report;
