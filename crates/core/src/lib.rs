#![doc = include_str!("../README.md")]

pub mod ambient;
pub mod client;
pub mod decision;
pub mod duration;
pub mod election;
pub mod events;
pub mod executor;
pub mod facts;
pub mod fair_queue;
pub mod freshness;
pub mod holding;
pub mod http;
pub mod index;
pub mod informer;
pub mod invariants;
pub mod lifecycles;
#[cfg(any(test, feature = "test-util"))]
pub mod logged;
pub mod moment;
pub mod names;
pub mod object;
mod outage;
pub mod owned;
pub mod release;
pub mod rights;
pub mod runner;
pub mod selection;
pub mod slim;
pub mod ticks;
pub mod watch;
pub mod words;
pub mod workqueue;
