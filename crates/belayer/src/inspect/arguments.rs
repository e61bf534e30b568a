//! Arguments of the commands that only read.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, value_parser};

use belayer_holds::selection::Selector;

use crate::arguments::{Output, ReadArguments, namespace};
use crate::exit::Failure;
use crate::server::BindAddress;

/// The text below the options of `stuck`.
pub(crate) const STUCK_HELP: &str = "\
The command is read-only. It lists the metadata of every kind and reads stuck
objects in full. The `view` role suffices to run it: kinds that you may not
list are named, and causes that need Leases, nodes or CRDs are `unknown`. The
ClusterRole belayer-viewer allows you to read these, too.

Examples:
  belayer stuck                      all stuck objects, grouped by cause
  belayer stuck -n shop              one namespace and its own deletion
  belayer stuck --older-than 1h      objects stuck for an hour or more
  belayer stuck -o json | jq '.groups[].verdict'
  belayer stuck -o name | xargs -L 1 belayer explain

Exit codes:
  0  nothing is stuck, and everything was checked
  1  an error; also if the server does not answer within 10 s, or stops
     answering for two minutes
  2  wrong usage or configuration
  3  something is stuck, or an API does not answer
  4  nothing was found to be stuck, but not everything could be checked";

/// The text below the options of `explain`.
pub(crate) const EXPLAIN_HELP: &str = "\
Examples:
  belayer explain pod/build-1        the rule, and what it waits for
  belayer explain namespace shop     why it is not deleted
  belayer explain pvc/data -n shop --watch

Exit codes:
  0  the object is not stuck
  1  an error, or the object does not exist; also if the server does not answer
     within 10 s, or stops answering for two minutes
  2  wrong usage or configuration, or the kind does not exist
  3  the object is stuck: its deletion is past its grace period";

/// The text below the options of `status`.
pub(crate) const STATUS_HELP: &str = "\
The command is read-only. It lists the metadata of the kinds that can be held,
Belayer's own pods and Lease, and Events about denied releases; for --serve
also PodRecreations. Counts of a running Belayer are read from its pod through
the API server's proxy, if RBAC allows it. If no pod answers, unselected objects
are counted with --config; without --config they are known only from Events of
the last hour.

Examples:
  belayer status                     held and waiting objects, leader
  belayer status -n shop             one namespace
  belayer status --serve             a page on http://127.0.0.1:8082
  belayer status -o json | jq '.components[] | {component, held}'

Exit codes:
  0  nothing needs attention
  1  an error; also if the server does not answer within 10 s, or stops
     answering for two minutes
  2  wrong usage or configuration
  3  something needs attention: a denied release, releases held back by the
     guard against mass release, or held objects while no replica runs
  4  nothing is known to need attention, but not everything could be checked";

/// The text below the options of `check`.
pub(crate) const CHECK_HELP: &str = "\
The command is read-only. It checks permissions with access reviews, which the
API server does not store.

Examples:
  belayer check                      with your own permissions
  belayer check --service-account    those of Belayer's ServiceAccount
  belayer check --controllers=pvc-protection --config belayer.yaml

Exit codes:
  0  nothing is missing
  1  an error; also if the server does not answer within 10 s, or stops
     answering for two minutes
  2  wrong usage or configuration
  3  something is missing
  4  nothing is known to be missing, but not everything could be checked";

/// Arguments of `belayer stuck`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("output", |output| output.value_parser(value_parser!(Output))))]
pub struct StuckArguments {
    /// Only this namespace, including its own deletion. Default: all namespaces
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub namespace: Option<String>,

    /// All namespaces: the default; accepted as in kubectl
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Only objects with these labels (example: app=web,tier!=test)
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<Selector>,

    /// Only objects past their grace period for at least this long (example: 90s, 10m,
    /// 2h, 3d)
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = belayer_core::duration::parse)]
    pub older_than: Duration,

    /// Keep watching: check again every 10 s, and print again after each change
    #[arg(short, long)]
    pub watch: bool,

    /// The cluster, the output format and the configuration.
    #[command(flatten)]
    pub read: ReadArguments,
}

/// Arguments of `belayer explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArguments {
    /// The object, as in kubectl: `pod/web-0` or `pod web-0`
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    pub object: Vec<String>,

    /// Namespace of the object. Default: the context's namespace
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub namespace: Option<String>,

    /// Keep watching, and print again after each change
    #[arg(short, long)]
    pub watch: bool,

    /// The cluster, the output format and the configuration.
    #[command(flatten)]
    pub read: ReadArguments,
}

/// Arguments of `belayer status`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("output", |output| output.value_parser(Output::of_status())))]
pub struct StatusArguments {
    /// Count in one namespace. Default: everywhere
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub namespace: Option<String>,

    /// Serve the status as a page that updates itself, until Ctrl-C. Shows the held
    /// objects and Belayer's Events as well
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:8082",
        conflicts_with = "output"
    )]
    pub serve: Option<BindAddress>,

    /// The cluster, the output format and the configuration.
    #[command(flatten)]
    pub read: ReadArguments,
}

/// Arguments of `belayer check`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("output", |output| output.value_parser(Output::of_data())))]
pub struct CheckArguments {
    /// Controllers whose requirements are checked; same syntax as in
    /// `belayer run` [default: those of the configuration]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true,
        env = "BELAYER_CONTROLLERS"
    )]
    pub controllers: Option<Vec<String>>,

    /// Name of their Lease [default: belayer]
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,

    /// Check the permissions of a ServiceAccount instead of your own. Default
    /// account: `belayer` in Belayer's namespace
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "as_user"
    )]
    pub service_account: Option<String>,

    /// Check this user's permissions instead of your own
    #[arg(long = "as", value_name = "USER", value_parser = NonEmptyStringValueParser::new())]
    pub as_user: Option<String>,

    /// Groups of that user, besides system:authenticated
    #[arg(long, value_name = "GROUP", requires = "as_user")]
    pub as_group: Vec<String>,

    /// The cluster, the output format and the configuration.
    #[command(flatten)]
    pub read: ReadArguments,
}

impl ExplainArguments {
    /// Kind and name of the object.
    ///
    /// # Errors
    ///
    /// If they are neither `KIND/NAME` nor `KIND NAME`.
    pub fn object(&self) -> Result<(String, String), Failure> {
        let found = match self.object.as_slice() {
            [one] => one.split_once('/'),
            [kind, name] if !kind.contains('/') => Some((kind.as_str(), name.as_str())),
            _ => None,
        };
        match found {
            Some((kind, name)) if is_kind(kind) && is_name(name) => {
                Ok((kind.to_owned(), name.to_owned()))
            }
            _ => Err(Failure::configuration(anyhow::anyhow!(
                "invalid object {:?}: write KIND/NAME or KIND NAME (example: pod/web-0)",
                self.object.join(" ")
            ))),
        }
    }
}

fn is_kind(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    !text.is_empty() && text.chars().all(good)
}

/// Whether it can be the name of an object: RBAC objects may have any name that is a path segment.
fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}
