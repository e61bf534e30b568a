//! What the commands that only look take.

use std::time::Duration;

use clap::Args;

use belayer_inspect::selector::LabelSelector;

use crate::arguments::{ClusterArguments, LookArguments, OwnNamespace, namespace};
use crate::exit::Failure;

/// What stands below the options of `stuck`.
pub(crate) const STUCK_HELP: &str = "\
It only reads: metadata of every kind, and more of what hangs. Rights to view
are enough; kinds that may not be listed are named.

Examples:
  belayer stuck                      everything, grouped by what keeps it
  belayer stuck -n shop              one namespace, and why it does not go
  belayer stuck --older-than 1h      only what hangs for an hour
  belayer stuck -o json | jq '.groups[].verdict'

Exit codes:
  0  nothing hangs, and everything was looked at
  1  an error; also if the server does not answer within 10 s, or stops
     answering for two minutes
  2  wrong usage or configuration
  3  something hangs, or an API does not answer
  4  nothing hangs among what could be looked at, and not everything could";

/// What stands below the options of `explain`.
pub(crate) const EXPLAIN_HELP: &str = "\
Examples:
  belayer explain pod/build-1        is it held, by which rule, what is missing
  belayer explain namespace shop     what keeps it
  belayer explain pvc/data -n shop --watch

Exit codes:
  0  it does not hang
  1  an error, or there is no such object; also if the server does not answer
     within 10 s, or stops answering for two minutes
  2  wrong usage or configuration
  3  it is past its grace, and something keeps it";

/// What stands below the options of `status`.
pub(crate) const STATUS_HELP: &str = "\
It only reads: metadata of the kinds that are held, Belayer's own pods and
Lease, and Events that report a denied release. What a running Belayer counts
itself is asked by the API server's proxy to its pod, if that is allowed. If no
pod answers, the holds that it keeps back are counted by --config; without
--config only an Event of the last hour reports them.

Examples:
  belayer status                     held, waiting, denied, oldest; who leads
  belayer status -n shop             one namespace
  belayer status -o json | jq '.components[] | {component, held, waiting}'

Exit codes:
  0  nothing needs anybody
  1  an error; also if the server does not answer within 10 s, or stops
     answering for two minutes
  2  wrong usage or configuration
  3  something needs somebody: a denied release, holds kept back, or holds
     and nobody there to release them
  4  nothing is known to need somebody, and not everything could be looked at";

/// What stands below the options of `check`.
pub(crate) const CHECK_HELP: &str = "\
It changes nothing: rights are asked for by access reviews, which the API
server answers and forgets.

Examples:
  belayer check                      with your own rights
  belayer check --service-account    with those of Belayer's account
  belayer check --controllers=pvc-protection --config belayer.yaml

Exit codes:
  0  everything that is needed is there
  1  an error; also if the server does not answer within 10 s, or stops
     answering for two minutes
  2  wrong usage or configuration
  3  something is missing
  4  nothing is known to be missing, and not everything could be checked";

/// Arguments of `belayer stuck`.
#[derive(Debug, Clone, Args)]
pub struct StuckArguments {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArguments,

    /// Look at one namespace, and at its own deletion. Default: everywhere
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
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

    /// Where Belayer is.
    #[command(flatten)]
    pub own: OwnNamespace,

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
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub namespace: Option<String>,

    /// Go on looking, and print again whenever something has changed
    #[arg(short, long)]
    pub watch: bool,

    /// Where Belayer is.
    #[command(flatten)]
    pub own: OwnNamespace,

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
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
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
