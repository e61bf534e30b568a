//! Shared parts of the controllers' explainers.

mod decided;
mod live;

pub use decided::explained;
pub use live::{Live, LiveQueries, LiveStore, Observed};
