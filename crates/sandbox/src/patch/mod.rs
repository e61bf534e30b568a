//! Patches on untyped objects.

pub(crate) mod merge;
pub(crate) mod strategic;
