//! What to start.

use super::node::RealNodes;

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hollow nodes, whose kubelets do not run containers. Zero without the hollow kubelet.
    pub hollow_nodes: usize,
    /// The programs in addition to the API server and its store.
    pub others: OtherPrograms,
    /// Real nodes, which run containers.
    pub real: Option<RealNodes>,
    /// How many requests the API server processes at once, by priority and fairness; its own default if `None`.
    pub max_in_flight: Option<u32>,
}

/// The programs in addition to the API server and its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherPrograms {
    /// Controllers, scheduler, kubelets.
    All,
    /// None, so that benchmarks do not share the machine with them.
    None,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hollow_nodes: 1,
            others: OtherPrograms::All,
            real: None,
            max_in_flight: None,
        }
    }
}

impl Options {
    /// Real nodes only.
    pub fn real(nodes: RealNodes) -> Self {
        Self {
            hollow_nodes: 0,
            real: Some(nodes),
            ..Self::default()
        }
    }

    /// An API server and its store, for benchmarks.
    pub fn api_server_alone() -> Self {
        Self {
            hollow_nodes: 0,
            others: OtherPrograms::None,
            real: None,
            max_in_flight: None,
        }
    }
}
