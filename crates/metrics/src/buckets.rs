//! Upper bounds of histogram buckets, in seconds. `+Inf` is added to each list.

/// client-go's buckets of the workqueue histograms: ten, a factor of ten apart, from 10 ns.
pub(crate) const WORKQUEUE: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// One request: a patch responded from memory takes a millisecond, a timeout half a minute.
pub(crate) const REQUEST: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// From the evidence to the release: a millisecond without contention, ten minutes with the slowest
/// retry.
pub(crate) const RELEASE: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0, 600.0,
];
