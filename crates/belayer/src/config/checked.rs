//! Keys of the file, checked and converted.

use std::fmt;
use std::time::Duration;

use belayer_core::duration;
use clap::ValueEnum as _;

use super::process::LimitsConfig;
use super::{ConfigError, Source};
use crate::logging::{LogArguments, LogFormat};
use crate::server::BindAddress;

/// The durations of the leader election that the file sets.
#[derive(Debug, Clone, Copy, Default)]
pub struct ElectionTimes {
    /// `leaseDuration`.
    pub lease_duration: Option<Duration>,
    /// `renewDeadline`.
    pub renew_deadline: Option<Duration>,
    /// `retryPeriod`.
    pub retry_period: Option<Duration>,
}

impl Source {
    /// The value of a key that may be missing.
    fn parsed<T, E: fmt::Display>(
        &self,
        key: &str,
        text: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigError> {
        let parsed = text.map(parse).transpose();
        parsed.map_err(|error| self.error(key, error.to_string()))
    }

    /// The durations of `leaderElection`.
    ///
    /// # Errors
    /// If one of them is not a duration.
    pub fn election_times(&self) -> Result<ElectionTimes, ConfigError> {
        let config = &self.config.leader_election;
        let read = |key, text: &Option<String>| self.parsed(key, text.as_deref(), duration::parse);
        Ok(ElectionTimes {
            lease_duration: read("leaderElection.leaseDuration", &config.lease_duration)?,
            renew_deadline: read("leaderElection.renewDeadline", &config.renew_deadline)?,
            retry_period: read("leaderElection.retryPeriod", &config.retry_period)?,
        })
    }

    /// The addresses of `endpoints`, in the order of its keys.
    ///
    /// # Errors
    /// If one of them is not an address.
    pub fn endpoints(&self) -> Result<[Option<BindAddress>; 3], ConfigError> {
        let config = &self.config.endpoints;
        let read = |key, text: &Option<String>| self.parsed(key, text.as_deref(), str::parse);
        Ok([
            read("endpoints.metricsBindAddress", &config.metrics_bind_address)?,
            read(
                "endpoints.healthProbeBindAddress",
                &config.health_probe_bind_address,
            )?,
            read("endpoints.debugBindAddress", &config.debug_bind_address)?,
        ])
    }

    /// `limits`, checked against their ranges.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn limits(&self) -> Result<&LimitsConfig, ConfigError> {
        let config = &self.config.limits;
        let bounds = [
            ("qps", config.qps, u32::MAX),
            ("burst", config.burst, u32::MAX),
            ("concurrentReleases", config.concurrent_releases, 1024),
        ];
        for (key, value, most) in bounds {
            if let Some(value) = value
                && !(1..=most).contains(&value)
            {
                let range = match most {
                    u32::MAX => format!("must be at least 1, not {value}"),
                    most => format!("must be from 1 to {most}, not {value}"),
                };
                return Err(self.error(format!("limits.{key}"), range));
            }
        }
        Ok(config)
    }

    /// The logging arguments, completed by `logging` of the file.
    ///
    /// # Errors
    /// If a value is not a format or a level.
    pub fn logging(&self, arguments: &LogArguments) -> Result<LogArguments, ConfigError> {
        let config = &self.config.logging;
        let format = self.parsed("logging.format", config.format.as_deref(), |text| {
            LogFormat::from_str(text, false)
                .map_err(|_| format!("invalid log format {text:?}: use text or json"))
        })?;
        let levels = self.parsed("logging.level", config.level.as_deref(), str::parse)?;
        Ok(LogArguments {
            log_format: arguments.log_format.or(format),
            log_level: arguments.log_level.clone().or(levels),
        })
    }
}
