//! Shared parts of the controllers' explainers.

mod counted;
mod decided;
mod read;

pub use counted::counted;
pub use decided::Decided;
pub use read::read;
