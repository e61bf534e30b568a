#![doc = include_str!("../README.md")]

pub mod config;
pub mod context;
pub mod explain;

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use belayer_core::informer::InformerBuilder;
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta, Pod};
use belayer_holds::selection::Selected;
use belayer_inspect::explain::{ExplainError, Explainer};
use belayer_inspect::preflight::Part;
use belayer_inspect::reader::Reader;

use config::{Key, Problem, Section};
use context::ControllerContext;

/// A controller: everything that a program needs to know of it. Each controller crate has one
/// constant of this type, and a program has a list of them. The program
/// [`controller`](https://github.com/belayer/belayer/blob/main/e2e/external/controller/src/main.rs)
/// has one.
pub struct Controller {
    /// Its name in `--controllers`, in metrics and in Events.
    pub name: &'static str,
    /// Its key in the configuration file.
    pub key: &'static str,
    /// Whether `*` in `--controllers` includes it. Otherwise it must be named.
    pub default_on: bool,
    /// All keys below that one, in the usual order of a file.
    pub keys: &'static [Key],
    /// The custom resource definitions that it needs.
    pub crds: &'static [Crd],
    /// Its own finalizer.
    pub finalizer: &'static str,
    /// The key of the gate that switches its admission policy.
    pub switch: &'static str,
    /// Checks its key of the configuration file. Missing keys have their default.
    pub configure: fn(&Section<'_>) -> Result<Arc<dyn Configured>, Problem>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Controller").field(&self.name).finish()
    }
}

/// Two controllers are the same if they have the same name.
impl PartialEq for Controller {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Controller {}

/// The CustomResourceDefinition of a kind. Part of a [`Controller`].
#[derive(Debug, Clone, Copy)]
pub enum Crd {
    /// YAML text.
    Text(&'static str),
    /// Generated from the Rust type.
    Made(fn() -> serde_json::Value),
}

/// A controller with its settings. Returned by
/// [`Controller::configure`](crate::Controller::configure), as in the example of
/// [`Controller`].
pub trait Configured: fmt::Debug + Send + Sync {
    /// The controller.
    fn controller(&self) -> &'static Controller;

    /// The finalizers that it may set on objects, by kind.
    fn holds(&self) -> Vec<Hold>;

    /// Whether it adds finalizers. A controller that only reports does not, and removes those of an
    /// earlier configuration.
    fn adds_holds(&self) -> bool {
        true
    }

    /// Its requirements of the cluster: RBAC permissions, kinds, admission policies.
    fn requires(&self) -> Vec<Part>;

    /// Its requirements of the informers that controllers share.
    fn needs(&self) -> InformerRequirements;

    /// The keys of the configuration file that it uses and that a feature gate disables.
    fn gated(&self) -> Vec<Gated> {
        Vec::new()
    }

    /// Whether it selects an object that has its finalizer, of a kind that it [holds](Self::holds); `ignored` says that
    /// the object's namespace is excluded.
    fn selects(&self, kind: &Resource, object: &ObjectMeta, ignored: bool) -> Selected;

    /// Registers informers, handlers, rules and workers. Nothing runs yet.
    fn join(&self, context: &mut ControllerContext);

    /// The explainers of why the controller keeps or releases an object.
    fn explainers(&self, site: &Site<'_>) -> Vec<Explainer>;

    /// How many objects it keeps although no profile selects them, because they are too many;
    /// `None` if it never keeps any.
    ///
    /// # Errors
    /// If the objects cannot be listed.
    fn kept<'a>(&'a self, reader: &'a Reader) -> BoxFuture<'a, Kept> {
        let _ = reader;
        std::future::ready(None).boxed()
    }

    /// `namespace/name` of the controller's record of a pod that does not exist.
    fn record_of<'a>(
        &'a self,
        reader: &'a Reader,
        namespace: &'a str,
        pod: &'a str,
    ) -> BoxFuture<'a, Option<String>> {
        let _ = (reader, namespace, pod);
        std::future::ready(None).boxed()
    }
}

/// See [`Configured::kept`]. Zero or more objects, of a [`Controller`] that
/// limits how many it releases at once.
pub type Kept = Option<Result<usize, ExplainError>>;

/// The finalizers of a controller on one kind. Returned by
/// [`Configured::holds`], as in the example of
/// [`Controller`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The kind.
    pub kind: Resource,
    /// Its finalizers: the one that it adds, then those of earlier configurations.
    pub finalizers: Vec<&'static str>,
}

/// A controller's requirements of the shared informers. Fields that no controller requires are not
/// stored. Returned by [`Configured::needs`], as in the example of
/// [`Controller`].
#[derive(Clone, Default)]
pub struct InformerRequirements {
    /// Labels and annotations of pods.
    pub pods: Keep,
    /// Indexes of pods: an index costs about thirty bytes per pod.
    pub indexes: Vec<PodIndex>,
    /// Labels of namespaces.
    pub namespaces: Keep,
    /// Whether its decisions depend on namespaces.
    pub reads_namespaces: bool,
    /// Kinds that own pods, watched as metadata.
    pub owners: Vec<Resource>,
    /// Other kinds that are watched as metadata.
    pub records: Vec<Resource>,
    /// Labels of those kinds.
    pub keep_of_owners: Keep,
}

/// Adds an index to the informer of pods. Part of
/// [`InformerRequirements`]; the example of
/// [`Controller`] needs none.
pub type PodIndex = fn(InformerBuilder<Pod>) -> InformerBuilder<Pod>;

/// A key of the configuration file that is set although a feature gate disables it. Returned by
/// [`Configured::gated`]; the example of
/// [`Controller`] has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gated {
    /// The feature gate.
    pub gate: &'static str,
    /// The key.
    pub key: String,
}

/// The context of an explanation. [`Configured::explainers`]
/// receives it; see the example of [`Controller`].
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// Reads the cluster.
    pub reader: &'a Reader,
    /// Belayer's own namespace.
    pub namespace: &'a str,
    /// The path of the configuration file, if there is one.
    pub config: Option<&'a std::path::Path>,
    /// The owner kinds that any controller watches.
    pub owners: &'a [Resource],
}
