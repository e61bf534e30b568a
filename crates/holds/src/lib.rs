#![doc = include_str!("../README.md")]

pub mod argo;
pub mod conflict;
pub mod decision;
pub mod gate;
pub mod held_objects;
pub mod holding;
pub mod invariants;
pub mod names;
pub mod namespace;
pub mod owned;
pub mod owner;
pub mod permissions;
pub mod release;
pub mod runner;
pub mod selection;
pub mod view;
