#![doc = include_str!("../README.md")]

pub mod client;
pub mod decision;
pub mod events;
pub mod executor;
pub mod facts;
pub mod freshness;
pub mod http;
pub mod informer;
pub mod invariants;
pub mod moment;
pub mod names;
pub mod object;
pub mod release;
pub mod runner;
pub mod slim;
pub mod workqueue;
