//! Arguments that several commands share: the cluster, Belayer's namespace, the output.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use belayer_holds::names::DEFAULT_NAMESPACE;

use crate::config::Source;
use crate::config::process::EndpointsConfig;
use crate::exit::Failure;
use crate::kubeconfig::{self, Sources};
use crate::server::{CertificateFiles, Protection};

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

/// How the address of metrics is protected.
#[derive(Debug, Clone, Default, Args)]
pub struct ProtectionArguments {
    /// Certificate (PEM, with its chain) for serving metrics over TLS
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_TLS_CERT_FILE",
        help_heading = "Endpoints"
    )]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of that certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_TLS_PRIVATE_KEY_FILE",
        help_heading = "Endpoints"
    )]
    pub tls_private_key_file: Option<PathBuf>,

    /// Serve /metrics only to clients with a token that may `get` the path /metrics, as the
    /// API server decides; needs TLS
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "BELAYER_METRICS_AUTHORIZATION",
        value_parser = clap::builder::BoolishValueParser::new(),
        help_heading = "Endpoints"
    )]
    pub metrics_authorization: Option<bool>,
}

impl ProtectionArguments {
    /// Both files of the certificate, or none; and a token is not sent without TLS. A flag takes precedence over the
    /// keys of the configuration file.
    ///
    /// # Errors
    /// If a flag is missing, as a message that names it.
    pub fn resolve(&self, keys: &EndpointsConfig) -> Result<Protection, Failure> {
        let usage = |message: &'static str| Failure::configuration(anyhow::anyhow!(message));
        let certificate = self.tls_cert_file.as_ref().or(keys.tls_cert_file.as_ref());
        let key = self.tls_private_key_file.as_ref();
        let key = key.or(keys.tls_private_key_file.as_ref());
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            }),
            (None, None) => None,
            (Some(_), None) => return Err(usage("--tls-cert-file needs --tls-private-key-file")),
            (None, Some(_)) => return Err(usage("--tls-private-key-file needs --tls-cert-file")),
        };
        let authorization = self.metrics_authorization.or(keys.metrics_authorization);
        let authorization = authorization.unwrap_or(false);
        if authorization && certificate.is_none() {
            return Err(usage(
                "--metrics-authorization (`endpoints.metricsAuthorization`) needs --tls-cert-file and \
                 --tls-private-key-file, or their keys of `endpoints`: a token must not be sent without TLS",
            ));
        }
        Ok(Protection {
            certificate,
            authorization,
        })
    }
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

    /// Parses a data format or `wide`, for `belayer status`: its wide text has other details.
    pub fn of_status() -> impl TypedValueParser<Value = Self> {
        let wide = PossibleValue::new("wide").help("Also the finalizers, and every namespace");
        let data = [Self::Json, Self::Yaml];
        let data = data.iter().filter_map(ValueEnum::to_possible_value);
        Self::parser(data.chain([wide]).collect())
    }

    fn among(formats: &[Self]) -> impl TypedValueParser<Value = Self> {
        let formats = formats.iter().filter_map(ValueEnum::to_possible_value);
        Self::parser(formats.collect())
    }

    fn parser(formats: Vec<PossibleValue>) -> impl TypedValueParser<Value = Self> {
        PossibleValuesParser::new(formats).try_map(|name| Self::from_str(&name, false))
    }
}

/// The finalizer that Belayer puts on PVCs.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct PvcArguments {
    /// Finalizer that Belayer puts on PVCs: belayer.dev/pvc-protection in addition to
    /// kube-controller-manager's own controller, or kubernetes.io/pvc-protection
    /// instead of it. Without this flag PVCs get no finalizer: Belayer only reports
    /// which pods they wait for. Takes precedence over the configuration file
    #[cfg(feature = "pvc-protection")]
    #[arg(
        long,
        value_name = "NAME",
        env = "BELAYER_PVC_PROTECTION_FINALIZER",
        value_parser = belayer_pvc_protection::Mode::of
    )]
    pub pvc_protection_finalizer: Option<belayer_pvc_protection::Mode>,
}

impl PvcArguments {
    /// The value of the flag as text.
    pub(crate) fn finalizer(self) -> Option<String> {
        #[cfg(feature = "pvc-protection")]
        return self.pvc_protection_finalizer.map(|mode| mode.to_string());
        #[cfg(not(feature = "pvc-protection"))]
        None
    }

    /// The key of the file that the flag sets, with its value.
    pub(crate) fn key(self) -> Option<(String, serde_json::Value)> {
        let finalizer = self.finalizer()?;
        Some(("pvcProtection.finalizer".to_owned(), finalizer.into()))
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
    #[arg(long, value_name = "FILE", env = "BELAYER_CONFIG")]
    pub config: Option<PathBuf>,

    /// The finalizer that Belayer puts on PVCs, as `belayer run` takes it.
    #[command(flatten)]
    pub pvc: PvcArguments,
}

impl ReadArguments {
    /// The configuration file, or the defaults without one; a flag takes precedence.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn source(&self) -> Result<Source, Failure> {
        let source = Source::of(self.config.as_deref(), &[]);
        let flags: Vec<_> = self.pvc.key().into_iter().collect();
        source
            .and_then(|source| source.with_flags(&flags))
            .map_err(Failure::configuration)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rstest::rstest;

    use super::*;
    use crate::cli::{Cli, Command};

    const TLS: [&str; 2] = ["--tls-cert-file=c", "--tls-private-key-file=k"];

    /// T5: both programs have the same flags.
    #[rstest]
    #[case::none(&[], Ok((false, false)))]
    #[case::tls(&TLS, Ok((true, false)))]
    #[case::both(&[TLS[0], TLS[1], "--metrics-authorization"], Ok((true, true)))]
    #[case::no_key(&TLS[..1], Err("needs --tls-private-key-file"))]
    #[case::no_certificate(&TLS[1..], Err("needs --tls-cert-file"))]
    #[case::a_token_without_tls(&["--metrics-authorization"], Err("a token must not be sent without TLS"))]
    fn t5_metrics_are_protected_by_the_same_flags(
        #[case] flags: &[&str],
        #[case] expected: Result<(bool, bool), &str>,
        #[values("run", "node-agent")] program: &str,
    ) {
        let arguments = [&["belayer", program], flags].concat();
        let protection = match Cli::try_parse_from(arguments).unwrap().command {
            Command::Run(arguments) => arguments.protection,
            #[cfg(all(feature = "node-agent", target_os = "linux"))]
            Command::NodeAgent(arguments) => arguments.protection,
            other => panic!("{other:?}"),
        };
        match (protection.resolve(&EndpointsConfig::default()), expected) {
            (Ok(protection), Ok(expected)) => {
                let found = (protection.certificate.is_some(), protection.authorization);
                assert_eq!(found, expected);
            }
            (Err(failure), Err(expected)) => {
                assert!(failure.to_string().contains(expected), "{failure}");
                assert_eq!(failure.code(), 2);
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[rstest]
    #[case::check(&["check"], &["json", "yaml"])]
    #[case::drain(&["drain"], &["json", "yaml"])]
    #[case::status(&["status"], &["json", "yaml", "wide"])]
    #[case::explain(&["explain", "pod/a"], &["json", "yaml", "wide"])]
    #[case::stuck(&["stuck"], &["json", "yaml", "wide", "name"])]
    fn a_command_accepts_only_the_formats_that_it_has(
        #[case] command: &[&str],
        #[case] formats: &[&str],
    ) {
        for format in ["json", "yaml", "wide", "name"] {
            let mut arguments = vec!["belayer"];
            arguments.extend(command);
            arguments.extend(["-o", format]);
            let is_accepted = Cli::try_parse_from(arguments).is_ok();
            assert_eq!(is_accepted, formats.contains(&format), "{format}");
        }
    }

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
