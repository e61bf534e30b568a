//! What a benchmark measures in a process of its own: `belayer-contender`.
//!
//! Its memory is allocated by a counting allocator, which costs a few nanoseconds per allocation.

pub mod informer;
pub mod memory;
mod messages;
pub mod paths;
mod pods;
mod server;

pub use pods::Pods;
