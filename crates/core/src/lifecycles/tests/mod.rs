//! Tests of lifecycles.

mod driver;
mod world;
