#![doc = include_str!("../README.md")]

pub mod advice;
pub mod component;
pub mod config;
pub mod controller;
mod debug;
pub mod decide;
pub mod evidence;
mod explainer;
pub mod held_objects;
pub mod keys;
pub mod ledger;
pub mod look;
pub mod owner;
pub mod periodic;
pub mod question;
pub mod rights;
pub mod row;
pub mod snapshot;
pub mod turns;
pub mod uses;

pub use component::{NAME, PvcProtection};
pub use config::{Mode, Settings};
pub use controller::CONTROLLER;
