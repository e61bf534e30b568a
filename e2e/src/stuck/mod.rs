//! Fixtures of what hangs: a cause as data, and exactly what `belayer stuck` or `belayer explain`
//! has to say about it, on every provider.

mod fixture;
mod normal;
mod run;

pub(crate) use fixture::FIXTURES;
pub(crate) use run::{Tool, play};
