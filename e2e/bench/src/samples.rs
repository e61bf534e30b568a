//! The figures of several rounds.

/// The figures of one metric, one per round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, figure: f64) {
        let at = self.0.partition_point(|have| *have <= figure);
        self.0.insert(at, figure);
    }

    /// The median; for an even number the mean of the two in the middle.
    pub(crate) fn median(&self) -> Option<f64> {
        let half = self.0.len() / 2;
        let upper = *self.0.get(half)?;
        if self.0.len() % 2 == 1 {
            return Some(upper);
        }
        Some(f64::midpoint(self.0[half - 1], upper))
    }

    /// The number of rounds.
    pub(crate) fn rounds(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn least(&self) -> Option<f64> {
        self.0.first().copied()
    }

    pub(crate) fn most(&self) -> Option<f64> {
        self.0.last().copied()
    }

    pub(crate) fn sorted(&self) -> &[f64] {
        &self.0
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        let mut samples = Self::default();
        for figure in figures {
            samples.push(figure);
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none(&[], None)]
    #[case::one(&[3.0], Some(3.0))]
    #[case::odd(&[9.0, 1.0, 4.0], Some(4.0))]
    #[case::even(&[4.0, 1.0, 9.0, 2.0], Some(3.0))]
    fn the_median_is_in_the_middle(#[case] figures: &[f64], #[case] median: Option<f64>) {
        let samples: Samples = figures.iter().copied().collect();
        assert_eq!(samples.median(), median);
    }

    #[test]
    fn the_spread_is_from_the_least_to_the_most() {
        let samples: Samples = [4.0, 1.0, 9.0].into_iter().collect();
        assert_eq!((samples.least(), samples.most()), (Some(1.0), Some(9.0)));
    }
}
