//! What a benchmark measures in a separate process: `belayer-subject`.
//!
//! Its memory is allocated by a counting allocator, which costs a few nanoseconds per allocation.

pub mod informer;
pub mod memory;
mod messages;
pub mod paths;
mod pods;
mod resident;
mod server;

pub use pods::{FIRST_VERSION, Pods, Template};
pub use resident::{peak_resident_of, resident_of};
