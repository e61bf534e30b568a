//! The metrics of Belayer as data, and the Prometheus exposition.
#![doc = include_str!("../README.md")]

pub mod exposition;

mod buckets;
mod exporter;
mod prefix;
mod stability;
mod table;
mod values;
mod zeros;

pub use exporter::{Exporter, InstallError};
pub use metrics::Unit;
pub use prefix::Prefixed;
pub use stability::Stability;
pub use table::*;
pub use values::{
    NAMESPACES, bound_code, bound_method, bound_namespace, cause, config, lifecycle, outcome,
    priority, recreation, unread, waiting, wipe,
};
pub use zeros::{KnownValues, build_info, zero};
