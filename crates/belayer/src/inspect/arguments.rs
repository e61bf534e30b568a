//! What `stuck` and `explain` take.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use belayer_inspect::selector::LabelSelector;

use crate::exit::Failure;

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub struct ClusterArguments {
    /// Kubeconfig file. Default: $KUBECONFIG, the cluster this pod runs in, or
    /// ~/.kube/config, whichever is there first
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Data, documented and stable
    Json,
    /// The same as YAML
    Yaml,
    /// Text with every object and the sources
    Wide,
}

/// How to print what was found, and by which configuration to judge.
#[derive(Debug, Clone, Args)]
pub struct LookArguments {
    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Belayer's configuration file, if it runs with one: what it holds, and by
    /// which rule, depends on it
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
}

/// Where Belayer itself is.
#[derive(Debug, Clone, Args)]
pub struct OwnNamespace {
    /// Namespace that Belayer runs in
    #[arg(
        long,
        value_name = "NAME",
        env = "BELAYER_NAMESPACE",
        hide_env_values = true,
        default_value = belayer_core::names::DEFAULT_NAMESPACE
    )]
    pub own_namespace: String,
}

/// Arguments of `belayer stuck`.
#[derive(Debug, Clone, Args)]
pub struct StuckArguments {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Look at one namespace, and at its own deletion. Default: everywhere
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Look everywhere: the default, for kubectl's sake
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Only objects with these labels, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<LabelSelector>,

    /// Only what is past its grace for that long, such as 90s, 10m, 2h, 3d
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = belayer_core::duration::parse)]
    pub older_than: Duration,

    /// How to print it, and by which configuration.
    #[command(flatten)]
    pub look: LookArguments,
}

/// Arguments of `belayer explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArguments {
    /// The object, as kubectl takes it: `pod/web-0` or `pod web-0`
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub object: Vec<String>,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Namespace of the object. Default: that of the context
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Go on looking, and print again whenever something has changed
    #[arg(short, long)]
    pub watch: bool,

    /// How to print it, and by which configuration.
    #[command(flatten)]
    pub look: LookArguments,
}

/// Arguments of `belayer status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArguments {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Count in one namespace. Default: everywhere
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Where Belayer is.
    #[command(flatten)]
    pub own: OwnNamespace,

    /// How to print it, and by which configuration.
    #[command(flatten)]
    pub look: LookArguments,
}

/// Arguments of `belayer check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArguments {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Controllers to check for, as `belayer run` takes them
    #[arg(
        long,
        value_name = "LIST",
        default_value = "*",
        value_delimiter = ',',
        allow_hyphen_values = true,
        env = "BELAYER_CONTROLLERS",
        hide_env_values = true
    )]
    pub controllers: Vec<String>,

    /// Check the rights of a ServiceAccount instead of your own; belayer in
    /// Belayer's namespace unless named
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "as_user"
    )]
    pub service_account: Option<String>,

    /// Check the rights of this user instead of your own
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,

    /// Groups of that user, besides system:authenticated
    #[arg(long, value_name = "GROUP", requires = "as_user")]
    pub as_group: Vec<String>,

    /// Where Belayer is.
    #[command(flatten)]
    pub own: OwnNamespace,

    /// How to print it, and by which configuration.
    #[command(flatten)]
    pub look: LookArguments,
}

impl ExplainArguments {
    /// Kind and name.
    ///
    /// # Errors
    ///
    /// When they are neither `KIND/NAME` nor `KIND NAME`.
    pub fn object(&self) -> Result<(String, String), Failure> {
        let found = match self.object.as_slice() {
            [one] => one.split_once('/'),
            [kind, name] if !kind.contains('/') => Some((kind.as_str(), name.as_str())),
            _ => None,
        };
        match found {
            Some((kind, name)) if is_name(kind) && is_name(name) => {
                Ok((kind.to_owned(), name.to_owned()))
            }
            _ => Err(Failure::configuration(anyhow::anyhow!(
                "{:?} is no object: name it as KIND/NAME or KIND NAME, such as pod/web-0",
                self.object.join(" ")
            ))),
        }
    }
}

/// A path segment, and nothing that leads elsewhere.
fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    !text.is_empty() && text != "." && text != ".." && text.chars().all(good)
}
