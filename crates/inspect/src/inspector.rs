//! The two queries as calls with defaults.

use std::sync::Arc;

use belayer_core::clock;
use belayer_core::executor::Bounds;

use crate::explain::{Belayer, Explanation};
use crate::known_finalizers::KnownFinalizers;
use crate::reader::Reader;
use crate::report::Report;
use crate::scan::Silent;
use crate::stuck::{self, InspectError, Query};

/// Finds out why objects are stuck in Terminating. It only reads.
///
/// ```no_run
/// use belayer_inspect::{Inspector, KnownFinalizers, Query, Verdict};
///
/// # async fn report(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let known = KnownFinalizers::default().with_yaml(&std::fs::read_to_string("finalizers.yaml")?)?;
/// let inspector = Inspector::new(client).knowing(known);
/// for group in inspector.stuck(&Query::default()).await?.groups {
///     match group.verdict {
///         Verdict::ControllerGone => println!("{}: {:?}", group.headline, group.proof),
///         Verdict::Unknown => println!("{}: missing {:?}", group.headline, group.missing),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// The [crate's example](crate) finds an object that waits for a controller that is gone.
pub struct Inspector {
    reader: Reader,
    belayer: Belayer,
}

impl Inspector {
    /// An inspector with at most 50 requests per second.
    pub fn new(client: kube::Client) -> Self {
        let bounds = Bounds {
            qps: 50.0,
            burst: 100,
            ..Bounds::default()
        };
        Self {
            reader: Reader::new(client, bounds),
            belayer: Belayer::default(),
        }
    }

    /// Sets the known finalizers, with the entries of your project.
    #[must_use]
    pub fn knowing(mut self, known: KnownFinalizers) -> Self {
        self.belayer.known = Arc::new(known);
        self
    }

    /// Reports which objects are stuck, and why.
    ///
    /// # Errors
    ///
    /// If API discovery fails. A kind that cannot be listed is part of the report.
    pub async fn stuck(&self, query: &Query) -> Result<Report, InspectError> {
        stuck::stuck(&self.reader, query, &self.belayer, &Silent, clock::now).await
    }

    /// Explains what blocks the deletion of an object, or would block it. `kind` is what kubectl
    /// accepts: `pods`, `deploy` or `workflows.argoproj.io`. The namespace of a cluster-scoped kind
    /// is ignored.
    ///
    /// # Errors
    ///
    /// If there is no such kind or object, or it cannot be read.
    pub async fn explain(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Explanation, InspectError> {
        let object = (kind, name);
        stuck::explain(&self.reader, object, namespace, &self.belayer, clock::now).await
    }
}

impl std::fmt::Debug for Inspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inspector").field(&self.reader).finish()
    }
}
