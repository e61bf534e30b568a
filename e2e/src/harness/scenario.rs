//! A scenario: a name, a description, requirements, and the steps.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;

use super::cluster::Cluster;
use crate::providers::Capability;

/// The default deadline, on two overloaded cores.
const DEADLINE: Duration = Duration::from_secs(600);

/// Whether a scenario can share its cluster and its Belayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Runs in parallel with others, in its own namespace, under one Belayer with the default
    /// configuration.
    Shared,
    /// Starts, configures and kills its own Belayer; no other Belayer may run on the cluster.
    Alone,
}

/// How much of the machine a scenario uses or requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// It mostly waits.
    Light,
    /// It fails if a process gets no CPU time for seconds, as in leader election: never in parallel with a
    /// [`Load::Heavy`] one.
    Punctual,
    /// It uses a CPU fully: one at a time.
    Heavy,
}

impl Load {
    /// The number of shares of the machine.
    pub(super) const ALL: u32 = 7;
    /// The shares of all shared scenarios together.
    pub(super) const SHARED: u32 = 2;

    /// How many shares of the machine it takes.
    pub(super) fn shares(self) -> u32 {
        match self {
            Self::Light => 1,
            Self::Punctual => 3,
            Self::Heavy => 5,
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
    pub(super) is_nightly: bool,
    pub(super) is_smoke: bool,
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
            is_nightly: false,
            is_smoke: false,
            steps: Box::new(move |cluster| Box::pin(steps(cluster))),
        }
    }

    /// A scenario with its own cluster and its own Belayer.
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

    /// The capabilities that it requires; without them it is skipped, by name.
    pub fn needs(mut self, capabilities: impl IntoIterator<Item = Capability>) -> Self {
        self.needs.extend(capabilities);
        self
    }

    /// The deadline of the whole scenario.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How much of the machine it uses, which limits what runs in parallel.
    pub fn with_load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }

    /// Takes too long for every change: runs by name, and with `--nightly`.
    pub fn nightly(mut self) -> Self {
        self.is_nightly = true;
        self
    }

    /// One of those that show in minutes whether Belayer works with a release of Kubernetes.
    pub fn smoke(mut self) -> Self {
        self.is_smoke = true;
        self
    }

    /// The name, unique in the list.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it can share its cluster and its Belayer.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    pub(super) fn run(&self, cluster: Cluster) -> BoxFuture<'static, Result<()>> {
        (self.steps)(cluster)
    }
}
