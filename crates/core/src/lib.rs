#![doc = include_str!("../README.md")]

pub mod ambient;
pub mod client;
pub mod duration;
pub mod election;
pub mod events;
pub mod executor;
pub mod facts;
mod failure_log;
pub mod fair_queue;
pub mod freshness;
pub mod http;
pub mod index;
pub mod informer;
#[cfg(any(test, feature = "test-util"))]
pub mod logged;
pub mod moment;
pub mod object;
pub mod slim;
pub mod ticks;
pub mod watch;
pub mod words;
pub mod workqueue;
