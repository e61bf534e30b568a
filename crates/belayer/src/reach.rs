//! The server that a command talks to: no command waits for it without a word (L6).

use std::time::Duration;

use kube::Config;

use belayer_core::http::RequestError;
use belayer_inspect::reader::{Reader, Trouble};

use crate::exit::Failure;

/// A server that has not answered within this time is told of.
const TOLD: Duration = Duration::from_millis(1500);

/// A command that only looks gives up when there is no first answer within this time.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// It gives up when the server has answered and then does not for so long: twice the time of one
/// request, for a single API that hangs must not end the search for it.
const NO_ANSWER: Duration = Duration::from_secs(120);

/// A server, by its address.
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

    /// A request that failed and that nothing can be said without.
    pub(crate) fn failed(&self, error: &RequestError) -> Failure {
        Failure::Error(anyhow::anyhow!(Trouble::from(error).at(&self.address)))
    }

    /// The same, by what was seen of it.
    pub(crate) fn silent(&self, trouble: Option<&Trouble>, waited: Duration) -> Failure {
        let waited = belayer_core::duration::format(waited);
        Failure::Error(match trouble {
            Some(trouble) => {
                anyhow::anyhow!("{}; gave up after {waited}", trouble.at(&self.address))
            }
            None => anyhow::anyhow!("cannot reach {}: no answer within {waited}", self.address),
        })
    }

    /// Says on standard error that it is being waited for.
    pub(crate) fn tell(&self, trouble: Option<&Trouble>) {
        match trouble {
            Some(trouble) => anstream::eprintln!("{}; trying again", trouble.at(&self.address)),
            None => anstream::eprintln!("cannot reach {} yet: no answer", self.address),
        }
    }

    /// Work that asks by `reader`. It ends early if the server does not answer.
    pub(crate) async fn ask<T>(
        &self,
        reader: &Reader,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let contact = reader.contact();
        contact.begin();
        let silence = async {
            contact.silence(TOLD).await;
            if !contact.is_made() {
                self.tell(contact.trouble().as_ref());
            }
            loop {
                let limit = if contact.is_made() {
                    NO_ANSWER
                } else {
                    FIRST_ANSWER
                };
                contact.silence(limit).await;
                // The first answer may have come meanwhile: then there is more time.
                if !contact.is_made() || limit == NO_ANSWER {
                    return limit;
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            waited = silence => Err(self.silent(contact.trouble().as_ref(), waited)),
        }
    }
}
