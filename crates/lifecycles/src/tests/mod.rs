//! Tests of lifecycles.

mod driver;
mod exhaustive;
mod interleavings;
mod kubelet;
mod metering;
mod model;
mod node_agent;
mod pod_workers;
mod slot;
mod world;
