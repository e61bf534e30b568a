//! Keys of the file, checked and converted.

use std::time::Duration;

use belayer_core::duration;
use clap::ValueEnum as _;

use super::process::LimitsConfig;
use super::{ConfigError, Source};
use crate::logging::{Levels, LogArguments, LogFormat};
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
    /// The durations of `leaderElection`.
    ///
    /// # Errors
    /// If one of them is not a duration.
    pub fn election_times(&self) -> Result<ElectionTimes, ConfigError> {
        let config = &self.config.leader_election;
        let read = |key: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            let wrong = |error: duration::InvalidDuration| {
                self.error(format!("leaderElection.{key}"), error.to_string())
            };
            duration::parse(text).map(Some).map_err(wrong)
        };
        Ok(ElectionTimes {
            lease_duration: read("leaseDuration", &config.lease_duration)?,
            renew_deadline: read("renewDeadline", &config.renew_deadline)?,
            retry_period: read("retryPeriod", &config.retry_period)?,
        })
    }

    /// The addresses of `endpoints`, in the order of its keys.
    ///
    /// # Errors
    /// If one of them is not an address.
    pub fn endpoints(&self) -> Result<[Option<BindAddress>; 3], ConfigError> {
        let config = &self.config.endpoints;
        let read = |key: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            let parsed: Result<BindAddress, _> = text.parse();
            let wrong = |error: crate::server::ParseBindAddressError| {
                self.error(format!("endpoints.{key}"), error.to_string())
            };
            parsed.map(Some).map_err(wrong)
        };
        Ok([
            read("metricsBindAddress", &config.metrics_bind_address)?,
            read("healthProbeBindAddress", &config.health_probe_bind_address)?,
            read("debugBindAddress", &config.debug_bind_address)?,
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
        let format = match &config.format {
            Some(text) => Some(LogFormat::from_str(text, false).map_err(|_| {
                let message = format!("invalid log format {text:?}: use text or json");
                self.error("logging.format", message)
            })?),
            None => None,
        };
        let levels = match &config.level {
            Some(text) => {
                let wrong = |error: crate::logging::ParseLevelsError| {
                    self.error("logging.level", error.to_string())
                };
                Some(text.parse::<Levels>().map_err(wrong)?)
            }
            None => None,
        };
        Ok(LogArguments {
            log_format: arguments.log_format.or(format),
            log_level: arguments.log_level.clone().or(levels),
        })
    }
}
