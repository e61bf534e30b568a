//! Whether Belayer's memory and file descriptors grow.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Memory may grow by this share of its mean over a run: allocators take their time to reach a steady state.
const SHARE: f64 = 0.1;
/// Less than this is noise, in bytes.
const NOISE: f64 = 4.0 * MIB;
/// File descriptors: connections come and go.
const DESCRIPTORS: f64 = 5.0;

const MIB: f64 = 1024.0 * 1024.0;

/// What was measured, by what it was measured of.
#[derive(Debug, Default)]
pub(crate) struct Growth(BTreeMap<&'static str, Vec<Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Seconds since the start.
    at: f64,
    /// Resident bytes.
    resident: f64,
    descriptors: f64,
}

/// A line through samples.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    mean: f64,
    /// From the first to the last sample.
    growth: f64,
}

impl Growth {
    /// Adds resident bytes and descriptors, measured at this time of the run.
    pub(super) fn add(
        &mut self,
        of: &'static str,
        at: Duration,
        (resident, descriptors): (u64, usize),
    ) {
        self.0.entry(of).or_default().push(Sample {
            at: at.as_secs_f64(),
            resident: resident as f64,
            descriptors: descriptors as f64,
        });
    }

    /// What grew.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (of, samples) in &self.0 {
            let resident = line(steady(samples), |sample| sample.resident);
            if resident.growth > NOISE.max(SHARE * resident.mean) {
                problems.push(format!(
                    "the memory of {of} grew by {:.1} MiB",
                    resident.growth / MIB
                ));
            }
            let descriptors = line(steady(samples), |sample| sample.descriptors);
            if descriptors.growth > DESCRIPTORS {
                problems.push(format!(
                    "the file descriptors of {of} grew by {:.0}",
                    descriptors.growth
                ));
            }
        }
        problems
    }
}

/// Without the first quarter, in which caches fill.
fn steady(samples: &[Sample]) -> &[Sample] {
    samples.get(samples.len() / 4..).unwrap_or_default()
}

/// The line with the least squares.
fn line(samples: &[Sample], value: fn(&Sample) -> f64) -> Line {
    let count = samples.len().max(1) as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (time, average) = (mean(|sample| sample.at), mean(value));
    let (mut covariance, mut variance) = (0.0, 0.0);
    for sample in samples {
        covariance += (sample.at - time) * (value(sample) - average);
        variance += (sample.at - time).powi(2);
    }
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return Line {
            mean: average,
            growth: 0.0,
        };
    };
    let growth = if variance > 0.0 {
        covariance / variance * (last.at - first.at)
    } else {
        0.0
    };
    Line {
        mean: average,
        growth,
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<36}{:>8}{:>14}{:>14}{:>14}",
            "after its first quarter", "samples", "resident", "growth", "descriptors"
        )?;
        for (of, samples) in &self.0 {
            let samples = steady(samples);
            let resident = line(samples, |sample| sample.resident);
            let descriptors = line(samples, |sample| sample.descriptors);
            writeln!(
                f,
                "{of:<36}{:>8}{:>10.1} MiB{:>10.1} MiB{:>7.1} {:+.1}",
                samples.len(),
                resident.mean / MIB,
                resident.growth / MIB,
                descriptors.mean,
                descriptors.growth
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn growth(resident: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Vec<String> {
        let mut growth = Growth::default();
        for minute in 0..40 {
            let used = (resident(minute), descriptors(minute) as usize);
            growth.add("it", Duration::from_secs(60 * minute), used);
        }
        growth.problems()
    }

    const START: u64 = 50 << 20;

    #[rstest]
    #[case::steady(|_| START, |_| 20, &[])]
    #[case::noise(|minute| START + (minute % 7) * (1 << 20), |minute| 20 + minute % 5, &[])]
    #[case::caches_fill_at_the_start(|minute: u64| START + minute.min(9) * (5 << 20), |_| 20, &[])]
    #[case::a_leak(|minute| START + minute * (1 << 20), |_| 20, &["the memory of it grew by 29.0 MiB"])]
    #[case::a_leak_of_descriptors(|_| START, |minute| 20 + minute, &["the file descriptors of it grew by 29"])]
    fn what_grows_is_a_problem(
        #[case] resident: fn(u64) -> u64,
        #[case] descriptors: fn(u64) -> u64,
        #[case] expected: &[&str],
    ) {
        assert_eq!(growth(resident, descriptors), expected);
    }

    #[test]
    fn nothing_measured_is_no_growth() {
        assert_eq!(Growth::default().problems(), [""; 0]);
        assert!(line(&[], |sample| sample.at).growth.abs() < f64::EPSILON);
    }
}
