//! The leader election of `belayer run`: flags, settings and start.

use std::time::Duration;

use belayer_core::election::{self, ElectorHealth, Ended, Leadership, Timing, TimingError};
use belayer_core::object::ObjectKey;
use belayer_core::{client, duration};
use belayer_holds::selection::is_dns_subdomain;
use belayer_metrics::{Known, KnownValues};
use clap::Args;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{ConfigError, Source};
use crate::exit::Failure;

/// Default name of the Lease.
pub const DEFAULT_NAME: &str = "belayer";

/// Flags of the leader election, named as in kube-controller-manager.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArguments {
    /// Elect a leader among the replicas; the others stand by with warm caches
    /// [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "BELAYER_LEADER_ELECT",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub leader_elect: Option<bool>,

    /// How long other replicas wait before they take over from a leader that no longer
    /// renews [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub leader_elect_lease_duration: Option<Duration>,

    /// How long the leader keeps writing while it cannot renew [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub leader_elect_renew_deadline: Option<Duration>,

    /// How often the leader renews and the others check the Lease [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub leader_elect_retry_period: Option<Duration>,

    /// Name of the Lease [default: belayer]
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,

    /// Namespace of the Lease [default: Belayer's own namespace]
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_namespace: Option<String>,
}

/// Settings of the leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// The Lease.
    pub lease: ObjectKey,
    /// The three durations.
    pub timing: Timing,
}

/// The flag or key that set a value, for errors about it.
#[derive(Debug, Clone, Copy)]
struct Origin {
    flag: &'static str,
    by_flag: bool,
    key: &'static str,
    by_file: bool,
}

impl Origin {
    fn error(self, source: &Source, message: String) -> Failure {
        if self.by_flag {
            Failure::configuration(anyhow::anyhow!("{}: {message}", self.flag))
        } else {
            Failure::configuration(source.error(self.key, message))
        }
    }
}

impl Election {
    /// The settings from flags and file; `None` if the leader election is switched off.
    ///
    /// # Errors
    /// If a value is invalid, or the three durations do not fit together.
    pub fn resolve(
        arguments: &ElectionArguments,
        source: &Source,
        own_namespace: &str,
    ) -> Result<Option<Self>, Failure> {
        let config = &source.config.leader_election;
        let timing = timing(arguments, source)?;
        let names = [
            setting(
                "--leader-elect-resource-name",
                arguments.leader_elect_resource_name.as_deref(),
                "leaderElection.resourceName",
                config.resource_name.as_deref(),
                DEFAULT_NAME,
            ),
            setting(
                "--leader-elect-resource-namespace",
                arguments.leader_elect_resource_namespace.as_deref(),
                "leaderElection.resourceNamespace",
                config.resource_namespace.as_deref(),
                own_namespace,
            ),
        ];
        for (origin, name) in names {
            if !is_dns_subdomain(name) {
                let message =
                    format!("invalid name {name:?}: use lower-case letters, digits, '-' and '.'");
                return Err(origin.error(source, message));
            }
        }
        let [(_, name), (_, namespace)] = names;
        let enabled = arguments.leader_elect.or(config.enabled).unwrap_or(true);
        Ok(enabled.then(|| Self {
            lease: ObjectKey::new(namespace, name),
            timing,
        }))
    }
}

/// The value of a setting, and where it is from.
fn setting<T>(
    flag: &'static str,
    by_flag: Option<T>,
    key: &'static str,
    by_file: Option<T>,
    default: T,
) -> (Origin, T) {
    let origin = Origin {
        flag,
        by_flag: by_flag.is_some(),
        key,
        by_file: by_file.is_some(),
    };
    (origin, by_flag.or(by_file).unwrap_or(default))
}

fn timing(arguments: &ElectionArguments, source: &Source) -> Result<Timing, Failure> {
    let file = source
        .election_times()
        .map_err(|error: ConfigError| Failure::configuration(error))?;
    let default = Timing::default();
    let lease = setting(
        "--leader-elect-lease-duration",
        arguments.leader_elect_lease_duration,
        "leaderElection.leaseDuration",
        file.lease_duration,
        default.lease_duration(),
    );
    let renew = setting(
        "--leader-elect-renew-deadline",
        arguments.leader_elect_renew_deadline,
        "leaderElection.renewDeadline",
        file.renew_deadline,
        default.renew_deadline(),
    );
    let retry = setting(
        "--leader-elect-retry-period",
        arguments.leader_elect_retry_period,
        "leaderElection.retryPeriod",
        file.retry_period,
        default.retry_period(),
    );
    Timing::new(lease.1, renew.1, retry.1).map_err(|error| {
        // Names the explicitly set one, the most likely cause first.
        let suspects = match error {
            TimingError::LeaseNotLonger
            | TimingError::LeaseTooShort
            | TimingError::LeaseTooLong => [lease, renew, retry],
            TimingError::DeadlineNotLonger => [renew, retry, lease],
            TimingError::RetryTooShort => [retry, renew, lease],
        };
        let [first, ..] = suspects;
        let (culprit, _) = suspects
            .into_iter()
            .find(|(origin, _)| origin.by_flag || origin.by_file)
            .unwrap_or(first);
        let [lease, renew, retry] = [lease, renew, retry].map(|(_, time)| duration::format(time));
        culprit.error(
            source,
            format!(
                "{error} (lease duration {lease}, renew deadline {renew}, retry period {retry})"
            ),
        )
    })
}

/// A running leader election.
#[derive(Debug)]
pub(crate) struct Running {
    /// Whether this process may write.
    pub(crate) leadership: Leadership,
    /// Health of the elector.
    pub(crate) elector: Option<ElectorHealth>,
    resign: CancellationToken,
    ended: Option<JoinHandle<Ended>>,
}

impl Running {
    /// No leader election: this process may always write.
    pub(crate) fn alone() -> Self {
        Self {
            leadership: Leadership::unlimited(),
            elector: None,
            resign: CancellationToken::new(),
            ended: None,
        }
    }

    /// Starts the elector with a connection of its own, so that a renewal never waits behind a long list.
    pub(crate) fn start(election: &Election, cluster: kube::Config) -> Result<Self, Failure> {
        let client = client::connect_apart(cluster, belayer_holds::names::USER_AGENT)
            .map_err(anyhow::Error::from)?;
        let name = election.lease.name().to_owned();
        KnownValues::new().with(Known::Lease, [name]).write_zeros();
        let (elector, leadership) = election::Elector::new(
            client,
            election::Settings {
                field_manager: belayer_holds::names::FIELD_MANAGER,
                lease: election.lease.clone(),
                identity: election::identity(&host()),
                timing: election.timing,
            },
        );
        let resign = CancellationToken::new();
        Ok(Self {
            leadership,
            elector: Some(elector.health()),
            ended: Some(tokio::spawn(elector.run(resign.clone()))),
            resign,
        })
    }

    /// Waits until the lease is lost, possibly forever.
    pub(crate) async fn lost(&mut self) -> Failure {
        let ended = match &mut self.ended {
            Some(ended) => ended.await,
            None => std::future::pending().await,
        };
        self.ended = None;
        let holder = match ended {
            Ok(Ended::Lost { holder }) if !holder.is_empty() => format!("the leader is {holder}"),
            _ => "another replica may be the leader".to_owned(),
        };
        Failure::from(anyhow::anyhow!(
            "the leader election was lost: {holder}; this process stops writing and exits, to restart as a \
             standby"
        ))
    }

    /// Releases the lease if this process has it.
    pub(crate) async fn resign(self) {
        self.resign.cancel();
        if let Some(ended) = self.ended {
            let _ = ended.await;
        }
    }
}

/// The host name or pod name, for the identity in the Lease.
fn host() -> String {
    let from_env = std::env::var("HOSTNAME").ok();
    let from_kernel = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = from_env
        .filter(|name| !name.is_empty())
        .or_else(from_kernel);
    host.map(|host| host.trim().to_owned()).unwrap_or_default()
}
