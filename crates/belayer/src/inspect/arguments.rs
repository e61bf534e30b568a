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

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Belayer's configuration file, to explain its own holds by its profiles
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
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

    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,

    /// Belayer's configuration file, to explain its own holds by its profiles
    #[arg(
        long,
        value_name = "FILE",
        env = "BELAYER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
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
