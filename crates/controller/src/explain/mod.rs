//! What explainers of controllers share.

mod decided;
mod live;

pub use decided::explained;
pub use live::{Live, LiveQueries, LiveStore, Observed};
