//! The metrics of Belayer as data, and the Prometheus exposition.
#![doc = include_str!("../README.md")]

pub mod exposition;

mod buckets;
#[cfg(feature = "exporter")]
mod exporter;
#[cfg(feature = "exporter")]
mod prefix;
mod stability;
mod table;
mod values;
mod zeros;

#[cfg(feature = "exporter")]
pub use exporter::{Exporter, InstallError};
pub use metrics::Unit;
#[cfg(feature = "exporter")]
pub use prefix::Prefixed;
pub use stability::Stability;
pub use table::*;
pub use values::{
    NAMESPACES, bound_code, bound_method, bound_namespace, cause, config, lifecycle, outcome,
    priority, recreation, unread, waiting, wipe,
};
pub use zeros::{KnownValues, build_info, zero};
