#![doc = include_str!("../README.md")]

mod clock;
mod cluster;
pub mod companions;
mod error;
mod faults;
mod http;
mod kinds;
mod meta;
mod patch;
mod recorder;
mod sandbox;
mod selector;
mod validate;
pub mod workload;

pub use clock::{Clock, Epoch, SharedRng, rfc3339};
pub use cluster::{
    Actor, Cluster, DeleteOptions, Deleted, EventType, Expired, FieldValidation, Gvr, ListOptions, ListPage,
    ObjectKey, Patch, Preconditions, Propagation, StoreEvent, Subresource, Subscription,
    VersionMatch, WriteOptions,
};
pub use error::{ApiError, Cause, Details, Reason};
pub use faults::{Answer, Fault, FaultHandle, Faults, Match, Target, WatchEnd};
pub use http::{Listener, SandboxBody, SandboxService};
pub use kinds::{Column, ResourceInfo, Scope, ServedVersion, StatusFace};
pub use recorder::{Mark, Outcome, Recorder, Verb, Write};
pub use sandbox::{Sandbox, SandboxBuilder};
pub use selector::{FieldSelector, LabelSelector, SelectorError, Selectors};
