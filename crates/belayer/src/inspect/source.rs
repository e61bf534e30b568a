//! The configuration of a command that only looks.

use std::path::Path;

use crate::config::Source;
use crate::exit::Failure;

impl Source {
    /// The file, or the defaults where none is named.
    ///
    /// # Errors
    ///
    /// When it cannot be read or makes no sense.
    pub(crate) fn given(path: Option<&Path>) -> Result<Self, Failure> {
        match path {
            Some(path) => Self::load(path).map_err(Failure::configuration),
            None => Ok(Self::default()),
        }
    }
}
