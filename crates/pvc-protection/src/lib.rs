#![doc = include_str!("../README.md")]

pub mod advice;
pub mod component;
mod config;
mod controller;
mod debug;
pub mod decide;
pub mod evidence;
mod explainer;
mod feeder;
mod held_objects;
mod keys;
pub mod owner;
mod periodic;
pub mod permissions;
pub mod pods_query;
pub mod query;
mod release_tracker;
pub mod row;
pub mod snapshot;
pub mod uses;

pub use component::{NAME, PvcProtection};
pub use config::{Mode, Settings};
pub use controller::CONTROLLER;
