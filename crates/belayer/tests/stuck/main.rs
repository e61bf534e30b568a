//! `belayer stuck` and `belayer explain`, the built binary against the embedded API server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail by panic"
)]

mod fixtures;
mod polite;
mod size;
mod usage;
mod world;
