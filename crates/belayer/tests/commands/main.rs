//! The commands that only read: the built binary against the embedded API server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail by panic"
)]

mod argo;
mod check;
mod check_limits;
mod environment;
mod help;
mod instances;
mod known;
mod limited;
mod namespaces;
mod nodes;
mod pages;
mod permissions;
mod polite;
mod pvcs;
mod reach;
#[cfg(all(
    feature = "pod-finalizer",
    feature = "pod-recreation",
    feature = "pvc-protection",
    feature = "workflow-finalizer"
))]
mod reference;
mod rows;
mod series;
mod signals;
mod size;
mod status;
mod steps;
mod terminal;
#[cfg(feature = "otlp")]
mod traces;
mod unruled;
mod usage;
mod volumes;
mod watch;
mod world;
