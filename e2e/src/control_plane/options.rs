//! What to start.

/// What to start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Hollow nodes, with kubelets that pretend to run containers. Zero where there is no kubemark.
    pub hollow_nodes: usize,
    /// The programs beside the API server and its store.
    pub beside: Beside,
}

/// The programs beside the API server and its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Controllers, scheduler, kubelets.
    All,
    /// None of them: what is measured shall not share the machine with others.
    None,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hollow_nodes: 1,
            beside: Beside::All,
        }
    }
}

impl Options {
    /// An API server and its store, for what is measured.
    #[must_use]
    pub fn api_server_alone() -> Self {
        Self {
            hollow_nodes: 0,
            beside: Beside::None,
        }
    }
}
