//! Is this namespace being deleted, or left alone?

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::owner::look_error;
use super::{LookError, Oracle, Question};
use crate::executor::{Class, Executor};
use crate::http::Request;
use crate::informer::{Decoders, Reading};
use crate::object::{ObjectKey, Resource};
use crate::slim::{Namespace, ObjectMeta};

/// What a namespace is like now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamespaceQuestion(Arc<str>);

impl NamespaceQuestion {
    /// A question about the namespace called `name`.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NamespaceQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what is the state of namespace {}", self.0)
    }
}

/// What a live look at a namespace found.
#[allow(
    clippy::large_enum_variant,
    reason = "few are kept, and hardly any of them is Gone"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceState {
    /// It exists.
    Present(ObjectMeta),
    /// There is none of that name.
    Gone,
}

impl Question for NamespaceQuestion {
    type Answer = NamespaceState;

    const NAME: &'static str = "namespace";

    fn outcome(answer: &NamespaceState) -> &'static str {
        match answer {
            NamespaceState::Present(_) => "present",
            NamespaceState::Gone => "gone",
        }
    }
}

/// Answers [`NamespaceQuestion`]s by live GETs of metadata.
#[derive(Debug)]
pub struct NamespaceOracle {
    executor: Arc<Executor>,
    decoders: Decoders<Namespace>,
}

impl NamespaceOracle {
    /// An oracle that reads namespaces by `decoders`.
    pub fn new(executor: Arc<Executor>, decoders: Decoders<Namespace>) -> Self {
        Self { executor, decoders }
    }

    async fn namespace(&self, question: &NamespaceQuestion) -> Result<NamespaceState, LookError> {
        let namespaces = Resource::new("", "v1", "Namespace", "namespaces");
        let key = ObjectKey::cluster(Arc::clone(&question.0));
        let request = Request::get(namespaces.object_path(&key))
            .accept(self.decoders.accept(Reading::Object));
        match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => self
                .decoders
                .read(&answer)
                .map(|namespace| NamespaceState::Present(namespace.meta))
                .map_err(|error| LookError {
                    message: error.to_string(),
                    retry_after: None,
                }),
            Err(error)
                if error
                    .api()
                    .is_some_and(|api| api.is_not_found_naming(&namespaces, &key)) =>
            {
                Ok(NamespaceState::Gone)
            }
            Err(error) => Err(look_error(&error)),
        }
    }
}

impl Oracle<NamespaceQuestion> for NamespaceOracle {
    fn look<'a>(
        &'a self,
        question: &'a NamespaceQuestion,
    ) -> BoxFuture<'a, Result<NamespaceState, LookError>> {
        Box::pin(self.namespace(question))
    }
}
