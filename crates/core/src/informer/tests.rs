//! The informer against a scripted server, on paused time.

mod failures;
mod freshness;
mod lists;
mod log;
mod objects;
mod properties;
mod server;
mod unserved;
