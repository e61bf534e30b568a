//! How far a run is.

use belayer_core::object::Resource;
use belayer_inspect::reader::Trouble;

/// Is told how far a run is.
pub trait Progress: Send + Sync {
    /// The server has given no usable answer for a while; why, if that is known. Called once until the
    /// server answers again.
    fn waiting(&self, _trouble: Option<&Trouble>) {}
    /// A step was done, in words.
    fn step(&self, _text: &str) {}
    /// So many kinds are looked at now.
    fn scanning(&self, _kinds: usize) {}
    /// A kind has been listed; so many objects in this pass by now.
    fn listed(&self, _kind: &Resource, _objects: u64) {}
    /// So many objects with holds were found.
    fn found(&self, _objects: usize) {}
    /// One of them was dealt with.
    fn dealt_with(&self) {}
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
