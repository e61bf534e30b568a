//! Belayer's controllers, whole, on the embedded API server under paused time: what each answer
//! of the server leads to, what is settled at the start, what limits hold.
#![allow(missing_docs, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod answers;
mod argo;
mod backlog;
mod claims;
mod determinism;
mod drain;
mod explained;
mod limits;
mod recreations;
mod rights;
mod series;
mod settling;
mod toy;
mod traces;
mod world;
