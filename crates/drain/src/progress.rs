//! Progress of a run. A [`Drain`](crate::run::Drain) reports to it; it ends with an
//! [outcome](crate::passes).

use belayer_core::object::Resource;
use belayer_inspect::reader::Trouble;

/// Receives the progress of a run. A [`Drain`](crate::run::Drain) reports to it; it ends with an
/// [outcome](crate::passes).
pub trait Progress: Send + Sync {
    /// The server has not sent a usable response for a while; the cause, if known. Called once until the
    /// server responds again.
    fn waiting(&self, _trouble: Option<&Trouble>) {}
    /// The gate is in draining mode. Called in each pass.
    fn draining(&self) {}
    /// A step is complete; its description.
    fn step(&self, _text: &str) {}
    /// This many kinds are about to be listed.
    fn scanning(&self, _kinds: usize) {}
    /// A kind has been listed; the number of objects in this pass so far.
    fn listed(&self, _kind: &Resource, _objects: u64) {}
    /// Number of objects with holds in this pass.
    fn found(&self, _objects: usize) {}
    /// One of them was handled.
    fn handled(&self) {}
}

/// Ignores all progress. A [`Drain`](crate::run::Drain) reports to it; it ends with an
/// [outcome](crate::passes).
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
