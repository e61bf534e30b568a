//! What an operator is made of.

use std::sync::Arc;

use kube::Client;

use belayer_core::election::Tenure;
use belayer_core::executor::{Bounds, Writes};
use belayer_holds::runner::Observer;

use crate::components::Components;

/// What an operator is made of.
pub struct Options {
    /// The cluster.
    pub client: Client,
    /// Belayer's own namespace.
    pub namespace: String,
    /// Bounds of requests.
    pub bounds: Bounds,
    /// Whether writes are sent.
    pub writes: Writes,
    /// When this process may write: until it may, only the caches are kept warm.
    pub tenure: Tenure,
    /// Is told of everything that is executed.
    pub observer: Arc<dyn Observer>,
    /// What each component does.
    pub components: Components,
}
