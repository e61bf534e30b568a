//! Arguments of `belayer drain`.

use std::time::Duration;

use clap::Args;

use belayer_core::duration;

use crate::arguments::{Output, ReadArguments, namespace, number};

/// The text below the options.
pub(crate) const HELP: &str = "\
Drain removes only Belayer's finalizers; those of other systems stay, including
kubernetes.io/pvc-protection. It also sets the Gate to draining,
deletes the admission policies that add finalizers and, once no hold is left,
the binding of the policy that guards Belayer's namespace and CRDs. If a pod
uses a PVC that only Belayer protects, the PVC keeps its finalizer and is
listed. If a pod is only in its PodRecreation, a running Belayer creates it
first; if none runs, the record stays and is listed.

Belayer stays in draining mode until `belayer drain --resume`, also if drain is
interrupted. Start it again at any time.

Examples:
  belayer drain --dry-run            what would be removed, what stays
  belayer drain                      before Belayer is uninstalled
  belayer drain --unselected --config FILE
                                     objects that no profile selects; FILE is
                                     the configuration that Belayer runs with,
                                     left out if it runs without one
  belayer drain --resume             Belayer adds finalizers again
  belayer drain --except-namespace team-a
                                     ignore new holds in this namespace

Exit codes:
  0  no object has a finalizer of Belayer any more
  1  an error: something could not be read or written, or there was no progress
     for the time of --timeout; also if the server cannot be reached
  2  wrong usage or configuration, or not confirmed; nothing was changed
  3  something must stay: a PVC in use that only Belayer protects, a finalizer
     of Belayer that this version does not know, or a pod that exists only in
     its PodRecreation; or a client keeps adding holds in the listed namespaces
  4  the API server refuses a request: RBAC, a policy or a webhook";

/// Arguments of `belayer drain`.
#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("own_namespace", |own| own.alias("namespace")),
    mut_arg("output", |output| output.value_parser(Output::of_data()).conflicts_with("resume"))
)]
pub struct DrainArguments {
    /// Report what would be done, and change nothing
    #[arg(long, conflicts_with = "resume")]
    pub dry_run: bool,

    /// Release only objects that no profile or rule of the configuration selects any
    /// more: give the configuration that Belayer runs with. Belayer keeps running normally
    #[arg(long, conflicts_with = "resume")]
    pub unselected: bool,

    /// List only the kinds that the configuration holds, instead of every kind that the
    /// API serves; for an account that may not list everything
    #[arg(long, conflicts_with = "resume")]
    pub configured_kinds: bool,

    /// End draining mode: Belayer adds finalizers again. To restore the policies that
    /// drain removed, apply the manifests again
    #[arg(long)]
    pub resume: bool,

    /// Do not ask for confirmation. Without a terminal nothing is asked
    #[arg(short, long)]
    pub yes: bool,

    /// Give up after this time without progress (example: 90s, 10m, 2h)
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = timeout)]
    pub timeout: Duration,

    /// Ignore new holds in this namespace: drain removes the holds that it finds there,
    /// but they affect neither its end nor its exit code. May be given several times
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "resume", value_parser = namespace)]
    pub except_namespace: Vec<String>,

    /// Releases of one kind in flight at once; fewer while the API server is
    /// overloaded
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = number::<u32>(1..=1024)
    )]
    pub concurrent_releases: u32,

    /// The cluster, the output format and the configuration.
    #[command(flatten)]
    pub read: ReadArguments,
}

fn timeout(text: &str) -> Result<Duration, String> {
    match duration::parse(text).map_err(|error| error.to_string())? {
        time if time.is_zero() => Err("must be at least 1s".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rstest::rstest;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Drain {
        #[command(flatten)]
        arguments: DrainArguments,
    }

    fn parse(arguments: &[&str]) -> Result<DrainArguments, clap::Error> {
        let all = ["drain"].iter().chain(arguments);
        Drain::try_parse_from(all).map(|drain| drain.arguments)
    }

    #[test]
    fn the_default_timeout_is_two_minutes() {
        assert_eq!(parse(&[]).unwrap().timeout, Duration::from_secs(120));
        let given = parse(&["--timeout=90s", "--unselected", "-ojson"]).unwrap();
        assert_eq!(given.timeout, Duration::from_secs(90));
        assert_eq!(given.read.output, Some(Output::Json));
    }

    #[rstest]
    #[case(&["--resume", "--dry-run"])]
    #[case(&["--resume", "--configured-kinds"])]
    #[case(&["--resume", "--unselected"])]
    #[case(&["--resume", "--except-namespace=a"])]
    #[case(&["--resume", "-ojson"])]
    #[case(&["--timeout=0s"])]
    #[case(&["--timeout=5"])]
    #[case(&["-owide"])]
    #[case(&["shop"])]
    fn invalid_arguments_are_wrong_usage(#[case] arguments: &[&str]) {
        assert_eq!(parse(arguments).unwrap_err().exit_code(), 2);
    }
}
