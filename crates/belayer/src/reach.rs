//! The server that a command talks to: a command that waits for it says so (L6).

use std::time::Duration;

use kube::Config;

use belayer_core::http::RequestError;
use belayer_inspect::reader::{Reader, Trouble};

use crate::exit::Failure;

/// A server that has not answered within this time is reported.
const REPORTED: Duration = Duration::from_millis(1500);

/// A command that only reads gives up if there is no first answer within this time.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// It gives up if the server has answered before and then does not for this time. That is twice the
/// timeout of one request, because a single API that hangs must not end the command.
const NO_ANSWER: Duration = Duration::from_secs(120);

/// A server, named by its address.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    address: String,
}

impl Server {
    /// The server of a kubeconfig.
    pub(crate) fn of(config: &Config) -> Self {
        let address = config.cluster_url.to_string();
        Self {
            address: address.trim_end_matches('/').to_owned(),
        }
    }

    /// The failure of a command that cannot go on without the request that failed.
    pub(crate) fn failed(&self, error: &RequestError) -> Failure {
        Failure::Error(anyhow::anyhow!(Trouble::from(error).at(&self.address)))
    }

    /// The failure of a command whose server did not answer for this time.
    pub(crate) fn silent(&self, trouble: Option<&Trouble>, waited: Duration) -> Failure {
        let waited = belayer_core::duration::format(waited);
        Failure::Error(match trouble {
            Some(trouble) => {
                anyhow::anyhow!("{}; gave up after {waited}", trouble.at(&self.address))
            }
            None => anyhow::anyhow!("cannot reach {}: no answer within {waited}", self.address),
        })
    }

    /// Reports on standard error that the command waits for the server.
    pub(crate) fn report(&self, trouble: Option<&Trouble>) {
        match trouble {
            Some(trouble) => anstream::eprintln!("{}; trying again", trouble.at(&self.address)),
            None => anstream::eprintln!("cannot reach {} yet: no answer", self.address),
        }
    }

    /// Runs `work`, which reads by `reader`. Ends early if the server does not answer.
    pub(crate) async fn ask<T>(
        &self,
        reader: &Reader,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let contact = reader.contact();
        contact.begin();
        let silence = async {
            contact.silence(REPORTED).await;
            if !contact.is_made() {
                self.report(contact.trouble().as_ref());
            }
            contact.silence_from(FIRST_ANSWER, NO_ANSWER).await
        };
        tokio::select! {
            biased;
            done = work => done,
            waited = silence => Err(self.silent(contact.trouble().as_ref(), waited)),
        }
    }
}
