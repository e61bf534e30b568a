//! All of Belayer's controllers on the embedded API server under paused time: the effect of each response of the
//! server, the state after the start, the limits.
#![allow(missing_docs, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod answers;
mod argo;
mod argo_costs;
mod argo_evidence;
mod argo_nodes;
mod backlog;
mod determinism;
mod drain;
mod explained;
mod gate;
mod limits;
mod outcomes;
mod overload;
mod permissions;
mod pvcs;
mod recreations;
mod series;
mod settling;
mod tenants;
mod toy;
mod traces;
mod world;
