#![doc = include_str!("../README.md")]
#![doc = include_str!("../LIMITS.md")]

mod access;
mod address;
#[cfg(feature = "cel")]
mod admission;
mod attempt;
mod clock;
mod cluster;
mod error;
mod faults;
mod fields;
mod fixtures;
mod http;
mod kinds;
mod meta;
mod names;
mod quantity;
mod recorder;
mod sandbox;
mod selector;
mod signal;
pub mod simulated;
mod strategic;
mod user;
mod validate;
mod wait;
mod wire;

pub use access::Authorization;
pub use address::{Actor, Gvr, ObjectKey, Subresource};
pub use clock::{Clock, Epoch, SharedRng};
pub use cluster::{
    Cluster, DeleteOptions, Deleted, EventType, Expired, FieldValidation, ListOptions, ListPage,
    Patch, Preconditions, Propagation, StoreEvent, Subscription, VersionMatch, WriteOptions,
};
pub use error::{ApiError, Cause, Details, Reason};
pub use faults::{
    Answer, Fault, FaultHandle, FaultPlan, FaultPlanError, Faults, Match, Target, WatchEnd,
};
pub use fixtures::{FIXTURES_ACTOR, FixtureError, Place};
pub use http::{Listener, SandboxBody, SandboxService};
pub use kinds::{Column, ResourceInfo, Scope, ServedVersion, StatusFace};
pub use recorder::{Mark, Outcome, Recorder, Recording, Verb, Write, WriteFilter};
pub use sandbox::{Sandbox, SandboxBuilder};
pub use selector::{FieldSelector, LabelSelector, SelectorError, Selectors};
pub use wait::WaitError;
