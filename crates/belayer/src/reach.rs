//! The server that a command connects to; a command that waits for it reports that (L6).

use std::time::Duration;

use kube::Config;

use belayer_core::http::RequestError;
use belayer_inspect::reader::{Reader, Trouble};

use crate::exit::Failure;
use crate::message::message;

/// Time without a response after which the server is reported.
const REPORTED: Duration = Duration::from_millis(1500);

/// Time without a first response after which a command that only reads gives up.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Time after which it gives up if the server has responded before: twice the timeout of a request, because
/// a single API that hangs must not end the command.
const NO_ANSWER: Duration = Duration::from_secs(120);

/// A server and its address.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    address: String,
}

impl Server {
    /// The server of a client configuration.
    pub(crate) fn of(config: &Config) -> Self {
        let address = config.cluster_url.to_string();
        Self {
            address: address.trim_end_matches('/').to_owned(),
        }
    }

    /// Its address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The failure of a command that needs the failed request.
    pub(crate) fn failed(&self, error: &RequestError) -> Failure {
        Failure::Error(anyhow::anyhow!(Trouble::from(error).at(&self.address)))
    }

    /// The failure of a command whose server did not respond for this time.
    pub(crate) fn silent(&self, trouble: Option<&Trouble>, waited: Duration) -> Failure {
        let waited = belayer_core::duration::format(waited);
        Failure::Error(match trouble {
            Some(trouble) => {
                anyhow::anyhow!("{}; gave up after {waited}", trouble.at(&self.address))
            }
            None => anyhow::anyhow!("cannot reach {}: no response within {waited}", self.address),
        })
    }

    /// Reports on standard error that the command waits for the server.
    pub(crate) fn report(&self, trouble: Option<&Trouble>) {
        let text = match trouble {
            Some(trouble) => format!("{}; trying again", trouble.at(&self.address)),
            None => format!("cannot reach {} yet: no response", self.address),
        };
        anstream::eprintln!("{}", message(&text));
    }

    /// Runs `work`, which uses `reader`, to its end. Reports once if the server does not respond.
    pub(crate) async fn wait<T>(&self, reader: &Reader, work: impl Future<Output = T>) -> T {
        let contact = reader.contact();
        contact.begin();
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = contact.silence(REPORTED) => self.report(contact.trouble().as_ref()),
        }
        work.await
    }

    /// Runs `work`, which uses `reader`. Ends early if the server does not respond.
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
