//! One scenario: a name, what it shows, what it needs, and the steps.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;

use super::cluster::Cluster;
use crate::providers::Capability;

/// Enough for every scenario that names no other deadline, on two busy cores.
const DEADLINE: Duration = Duration::from_secs(90);

/// Whether a scenario can share its cluster and its Belayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Runs beside others, in a namespace of its own, under one Belayer with the default
    /// configuration.
    Shared,
    /// Starts, configures, kills its own Belayer; nobody else's may run beside it.
    Alone,
}

/// What a scenario does to the machine it shares with others, or needs of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// It waits most of the time.
    Light,
    /// It fails where a process gets no processor for seconds, as leader election does: no
    /// [`Load::Heavy`] one beside it.
    Punctual,
    /// It keeps a processor busy: one at a time.
    Heavy,
}

impl Load {
    /// Shares that there are.
    pub(super) const ALL: usize = 4;
    /// Shares of all that run under one Belayer, together.
    pub(super) const SHARED: u32 = 2;

    /// How many shares of the machine it takes.
    pub(super) fn shares(self) -> u32 {
        match self {
            Self::Light => 1,
            Self::Punctual => 2,
            Self::Heavy => 3,
        }
    }
}

type Steps = Box<dyn Fn(Cluster) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// A scenario, written once against a [`Cluster`] handle.
pub struct Scenario {
    pub(super) name: &'static str,
    pub(super) shows: &'static str,
    pub(super) sharing: Sharing,
    pub(super) needs: Vec<Capability>,
    pub(super) deadline: Duration,
    pub(super) load: Load,
    steps: Steps,
}

impl Scenario {
    /// A scenario that shares its cluster with others.
    pub fn shared<F>(
        name: &'static str,
        shows: &'static str,
        steps: impl Fn(Cluster) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self {
            name,
            shows,
            sharing: Sharing::Shared,
            needs: Vec::new(),
            deadline: DEADLINE,
            load: Load::Light,
            steps: Box::new(move |cluster| Box::pin(steps(cluster))),
        }
    }

    /// A scenario that has the cluster to itself and starts its own Belayer.
    pub fn alone<F>(
        name: &'static str,
        shows: &'static str,
        steps: impl Fn(Cluster) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self {
            sharing: Sharing::Alone,
            ..Self::shared(name, shows, steps)
        }
    }

    /// What the provider must be able to do; one that is not is skipped by name.
    #[must_use]
    pub fn needs(mut self, capabilities: impl IntoIterator<Item = Capability>) -> Self {
        self.needs.extend(capabilities);
        self
    }

    /// How long the whole scenario may take.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What the scenario does to the machine, or needs of it: what may run beside it.
    #[must_use]
    pub fn with_load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }

    /// The name, unique in the list.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn run(&self, cluster: Cluster) -> BoxFuture<'static, Result<()>> {
        (self.steps)(cluster)
    }
}
