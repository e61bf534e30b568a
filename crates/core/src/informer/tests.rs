//! The informer against a scripted server, on paused time.

mod any_json;
mod endings;
mod failures;
mod freshness;
mod history;
mod lists;
mod objects;
mod server;
mod store_model;
mod unserved;
