//! What explainers of controllers share.

mod counted;
mod decided;
mod decided_old;
mod live;
mod read;

pub use counted::counted;
pub use decided::explained;
pub use decided_old::Decided;
pub use live::{Live, LiveQueries, LiveStore, Observed};
pub use read::read;
