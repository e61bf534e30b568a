//! Who owns which field of an object: `metadata.managedFields`, and server-side apply.
//!
//! The algorithm is that of structured-merge-diff, which the real API server uses. [`Shape`] is the part of a
//! schema that matters here, [`Set`] a set of paths in the form of `fieldsV1`, and [`Managers`] the entries of an
//! object.

mod apply;
mod changes;
mod check;
mod key;
mod managers;
mod merge;
mod schema;
mod set;

pub(crate) use apply::{ApplyError, Conflict, Conflicts};
pub(crate) use managers::{Managers, Writer};
#[cfg(feature = "cel")]
pub(crate) use merge::merge;
pub(crate) use schema::Shape;

#[cfg(test)]
mod tests;
