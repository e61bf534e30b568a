#![doc = include_str!("../README.md")]

pub mod decide;
pub mod evidence;
pub mod follow;
mod holds;
pub mod opening;
pub mod passes;
pub mod progress;
pub mod report;
pub mod run;
pub mod selection;
pub mod text;

mod findings;
mod pause;
mod records;
mod release;
mod scan;
mod site;
mod users;

pub use records::Recorded;
pub use report::Report;
pub use run::{Drain, DrainParts};
