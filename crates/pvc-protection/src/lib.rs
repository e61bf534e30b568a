#![doc = include_str!("../README.md")]

pub mod advice;
pub mod component;
pub mod config;
pub mod controller;
mod debug;
pub mod decide;
pub mod evidence;
mod explainer;
pub mod feeder;
pub mod held_objects;
pub mod keys;
pub mod owner;
pub mod periodic;
pub mod permissions;
pub mod pods_query;
pub mod query;
pub mod release_tracker;
pub mod row;
pub mod snapshot;
pub mod uses;

pub use component::{NAME, PvcProtection};
pub use config::{Mode, Settings};
pub use controller::CONTROLLER;
