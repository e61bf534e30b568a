#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

pub mod agent;
mod command;
pub mod config;
mod decide;
pub mod host;
pub mod layout;
mod requests;
pub mod uid;
pub mod wipe;

mod lifecycle_updates;
mod place;
mod work;
mod world;
