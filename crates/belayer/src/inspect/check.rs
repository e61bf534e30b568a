//! `belayer check`.

use jiff::Timestamp;

use belayer_core::executor::{Executor, Writes};
use belayer_holds::names::FIELD_MANAGER;
use belayer_inspect::preflight::{Level, Query, Subject, check, text};
use belayer_inspect::reader::Reader;

use super::arguments::CheckArguments;
use super::{BOUNDS, INCOMPLETE, parts};
use crate::election::{Election, ElectionArguments};
use crate::exit::Failure;
use crate::kubeconfig::Sources;
use crate::options::controllers;
use crate::screen::Screen;

/// Exit code if something that Belayer needs is missing.
pub(super) const MISSING: u8 = 3;

/// `belayer check`.
///
/// # Errors
///
/// If the cluster cannot be reached; and, with an exit code of its own, if something is missing.
pub async fn run_check(arguments: CheckArguments) -> Result<(), Failure> {
    let source = arguments.read.source()?;
    let controllers = controllers(arguments.controllers.as_deref(), &source)?;
    let own_namespace = arguments.read.own.name(&Sources::from_env())?;
    let flags = ElectionArguments {
        leader_elect_resource_name: arguments.leader_elect_resource_name.clone(),
        ..ElectionArguments::default()
    };
    let election = Election::resolve(&flags, &source, &own_namespace)?;
    let parts = parts(&source, &controllers, election.as_ref())?;
    let subject = subject(&arguments, &own_namespace)?;
    let (reader, _, server) = super::connect(&arguments.read.cluster).await?;
    // An access review is a create request, so this executor sends writes; it is used for nothing else.
    let reviewer = reviewer(&reader);
    let query = Query {
        own_namespace,
        subject,
        parts,
        client: env!("CARGO_PKG_VERSION"),
        now: Timestamp::now(),
    };
    let report = server.ask(&reader, async {
        let report = check(&reader, &reviewer, &query).await;
        report.map_err(|error| server.failed(&error))
    });
    let report = report.await?;
    let screen = Screen::of_stdout(arguments.read.output);
    screen.show(&report, |screen| text(&report, screen.style(), screen))?;
    let any = |level| report.of(level).next().is_some();
    match () {
        () if any(Level::Missing) => Err(Failure::Found(MISSING)),
        () if any(Level::Unknown) => Err(Failure::Found(INCOMPLETE)),
        () => Ok(()),
    }
}

fn reviewer(reader: &Reader) -> Executor {
    Executor::new(
        reader.executor().client().clone(),
        FIELD_MANAGER,
        BOUNDS,
        Writes::Sent,
    )
}

fn subject(arguments: &CheckArguments, own: &str) -> Result<Subject, Failure> {
    if let Some(name) = &arguments.as_user {
        let groups = arguments.as_group.iter().cloned();
        return Ok(Subject::User {
            name: name.clone(),
            groups: groups.chain(["system:authenticated".to_owned()]).collect(),
        });
    }
    match arguments.service_account.as_deref() {
        None => Ok(Subject::Own),
        Some("") => Ok(Subject::service_account(own, "belayer")),
        Some(account) => match account.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Subject::service_account(namespace, name))
            }
            _ => Err(Failure::configuration(anyhow::anyhow!(
                "--service-account: invalid ServiceAccount {account:?}: write NAMESPACE/NAME"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;
    use rstest::rstest;

    fn subject_of(flags: &[&str]) -> Result<String, Failure> {
        let arguments = ["belayer", "check"].iter().chain(flags);
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Check(arguments) => {
                let own = arguments.read.own.name(&Sources::default())?;
                subject(&arguments, &own).map(|subject| subject.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case::default(&[], "your own")]
    #[case::the_default_account(&["--service-account"], "system:serviceaccount:belayer-system:belayer")]
    #[case::elsewhere(&["--service-account", "--own-namespace=ops"], "system:serviceaccount:ops:belayer")]
    #[case::by_name(&["--service-account=a/b"], "system:serviceaccount:a:b")]
    #[case::a_user(&["--as=jane", "--as-group=dev"], "jane")]
    fn the_subject_of_the_reviews(#[case] flags: &[&str], #[case] whose: &str) {
        assert_eq!(subject_of(flags).unwrap(), whose);
    }

    #[test]
    fn an_account_without_namespace_is_rejected() {
        assert_eq!(subject_of(&["--service-account=b"]).unwrap_err().code(), 2);
    }
}
