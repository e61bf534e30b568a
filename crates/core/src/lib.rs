#![doc = include_str!("../README.md")]

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
pub mod object;
pub mod queries;
pub mod rng;
#[cfg(any(test, feature = "test-util"))]
pub mod simulated;
pub mod slim;
pub mod ticks;
pub mod watch;
pub mod words;
pub mod workqueue;
