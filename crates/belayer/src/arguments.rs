//! Arguments that several commands share: the cluster, Belayer's namespace, the output.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use belayer_holds::names::DEFAULT_NAMESPACE;

use crate::config::Source;
use crate::exit::Failure;
use crate::kubeconfig::{self, Sources};

/// The cluster to connect to.
#[derive(Debug, Clone, Default, Args)]
pub struct ClusterArguments {
    /// Kubeconfig file. Default: the first that exists of $KUBECONFIG, the cluster this
    /// pod runs in, and ~/.kube/config
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
}

impl ClusterArguments {
    /// Finds the cluster, as [`kubeconfig::load`] does.
    ///
    /// # Errors
    /// If there is none, or it cannot be used.
    pub async fn find(&self, sources: &Sources) -> Result<kube::Config, Failure> {
        kubeconfig::load(self.kubeconfig.as_deref(), self.context.as_deref(), sources)
            .await
            .map_err(Failure::configuration)
    }
}

/// Belayer's own namespace.
#[derive(Debug, Clone, Default, Args)]
pub struct OwnNamespace {
    /// Namespace in which Belayer is installed. Default: $POD_NAMESPACE, or
    /// belayer-system
    #[arg(
        long,
        value_name = "NAME",
        env = "BELAYER_NAMESPACE",
        hide_env_values = true,
        help_heading = "Cluster"
    )]
    pub own_namespace: Option<String>,
}

impl OwnNamespace {
    /// The name from the flag, from the pod's environment, or the default.
    ///
    /// # Errors
    /// If it is not a valid namespace name.
    pub fn name(&self, sources: &Sources) -> Result<String, Failure> {
        let namespace = self
            .own_namespace
            .as_ref()
            .or(sources.pod_namespace.as_ref())
            .map_or(DEFAULT_NAMESPACE, String::as_str);
        self::namespace(namespace)
            .map_err(|why| Failure::configuration(anyhow::anyhow!("--own-namespace: {why}")))
    }
}

/// Parses the name of a namespace. The name becomes a segment of a request path, so
/// other characters are rejected.
///
/// # Errors
/// If it is not a valid namespace name, as a message.
pub fn namespace(name: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| plain(b) || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if good {
        Ok(name.to_owned())
    } else {
        Err(format!("invalid namespace name {name:?} (example: team-a)"))
    }
}

/// Parses a whole number. The error names the expected form.
pub fn number<N>(range: RangeInclusive<N>) -> impl TypedValueParser<Value = N>
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    StringValueParser::new().try_map(move |text| {
        let found = text.parse().ok().filter(|number| range.contains(number));
        found.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("expected a whole number from {least} to {most}")
        })
    })
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// JSON with documented, stable keys
    Json,
    /// The same data as YAML
    Yaml,
    /// Text that lists every object and the source of each statement
    Wide,
    /// Only the objects, one per line, as `belayer explain` takes them
    Name,
}

impl Output {
    /// Parses a data format, for commands whose text has only one width.
    pub fn of_data() -> impl TypedValueParser<Value = Self> {
        Self::among(&[Self::Json, Self::Yaml])
    }

    /// Parses a data format or `wide`, for commands that list no objects.
    pub fn of_text() -> impl TypedValueParser<Value = Self> {
        Self::among(&[Self::Json, Self::Yaml, Self::Wide])
    }

    fn among(formats: &[Self]) -> impl TypedValueParser<Value = Self> {
        let formats = formats.iter().filter_map(ValueEnum::to_possible_value);
        PossibleValuesParser::new(formats).try_map(|name| Self::from_str(&name, false))
    }
}

/// The cluster, the output format and the configuration that objects are judged by.
#[derive(Debug, Clone, Default, Args)]
pub struct ReadArguments {
    /// The cluster to connect to.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Belayer's own namespace.
    #[command(flatten)]
    pub own: OwnNamespace,

    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_parser = Output::of_text())]
    pub output: Option<Output>,

    /// The configuration file that Belayer runs with. It decides which objects are held
    /// and by which rule
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
}

impl ReadArguments {
    /// The configuration file, or the defaults without one.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn source(&self) -> Result<Source, Failure> {
        Source::of(self.config.as_deref(), &[]).map_err(Failure::configuration)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn name(flag: Option<&str>, pod: Option<&str>) -> Result<String, Failure> {
        let own = OwnNamespace {
            own_namespace: flag.map(str::to_owned),
        };
        own.name(&Sources {
            pod_namespace: pod.map(str::to_owned),
            ..Sources::default()
        })
    }

    #[rstest]
    #[case::default(None, None, "belayer-system")]
    #[case::from_the_pod(None, Some("ops"), "ops")]
    #[case::a_flag_takes_precedence(Some("mine"), Some("ops"), "mine")]
    fn the_namespace_is_found(
        #[case] flag: Option<&str>,
        #[case] pod: Option<&str>,
        #[case] expected: &str,
    ) {
        assert_eq!(name(flag, pod).unwrap(), expected);
    }

    #[rstest]
    #[case("")]
    #[case("My-Namespace")]
    #[case("-a")]
    #[case("a/b")]
    fn an_invalid_namespace_is_rejected(#[case] flag: &str) {
        let failure = name(Some(flag), None).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("--own-namespace"), "{failure}");
    }
}
