#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]

pub mod agent;
pub mod command;
pub mod config;
pub mod decide;
pub mod host;
pub mod layout;
pub mod requests;
pub mod uid;
pub mod wipe;

mod feed;
mod place;
mod work;
mod world;
