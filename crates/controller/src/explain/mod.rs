//! Shared parts of the controllers' explainers. The program
//! [`controller`](https://github.com/belayer/belayer/blob/main/e2e/external/controller/src/main.rs)
//! explains nothing, and returns no explainers.

mod decided;
mod live;

pub use decided::explained;
pub use live::{Live, LiveQueries, LiveStore, Observed};
