#![doc = include_str!("../README.md")]

pub mod blocking;
pub mod client;
pub mod clock;
#[cfg(any(test, feature = "test-util"))]
pub mod damage;
pub mod duration;
pub mod election;
pub mod events;
pub mod executor;
mod failure_log;
pub mod fair_queue;
pub mod freshness;
pub mod http;
pub mod index;
pub mod informer;
#[cfg(any(test, feature = "test-util"))]
pub mod logged;
pub mod logical_time;
pub mod metric_names;
pub mod object;
pub mod queries;
#[cfg(test)]
mod recorded;
pub mod rng;
#[cfg(any(test, feature = "test-util"))]
pub mod simulated;
pub mod slim;
pub mod ticks;
pub mod watch;
pub mod words;
pub mod workqueue;

pub use election::{
    Elector, ElectorHealth, Ended as ElectionEnded, Leadership, LeaseGuard,
    Settings as ElectionSettings, Timing,
};
pub use events::{EventRecorder, EventSender, Notice, Regarding, Severity};
pub use executor::{Bounds, Class, Executor, Patched, Sent, Writes};
pub use fair_queue::FairQueue;
pub use freshness::OwnWrites;
pub use http::{Answer, ApiError, ErrorClass, PatchKind, Request, RequestError};
pub use informer::{
    Decoder, Decoders, Event, Handler, Informer, InformerBuilder, InformerState, JsonDecoder,
    Lookup, ProtobufDecoder, Scope, Store, Stored, WaitError,
};
pub use logical_time::LogicalTime;
pub use object::{ObjectKey, OwnerReference, Resource, ResourceVersion, Uid};
pub use queries::{
    Enqueue, LiveAnswer, LiveReader, LiveReads, Pace, Query, QueryCache, ReadError, Waiter,
};
pub use slim::json::{JsonMeta, SlimJson};
pub use slim::protobuf::{Fields, SlimProtobuf};
pub use slim::{DecodeContext, DecodeError, Interner, Keep, ObjectMeta, OwnerMeta, Slim};
pub use workqueue::{Backoff, Item, Outcome, Priority, WorkQueue, Workers};
