//! What a run may skip.

/// The list for continuous integration.
const LIST: &str = include_str!("skips.txt");

/// Which skips a run permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skips {
    /// All: on the machine of a contributor a tool may be missing.
    Any,
    /// Those of the list.
    Listed,
}

impl Skips {
    /// Of this run.
    pub(super) fn here() -> Self {
        match crate::is_ci() {
            true => Self::Listed,
            false => Self::Any,
        }
    }

    /// Whether a whole step may be skipped for this reason.
    pub(super) fn permit_step(self, why: &str) -> bool {
        self.permit(&format!("step {why}"))
    }

    /// Whether an ignored test may be skipped.
    pub(super) fn permit_test(self, name: &str) -> bool {
        self.permit(&format!("tests {name}"))
    }

    /// Whether a provider may skip a scenario (`NAME needs WHAT`) or a case of conformance (`NAME: why`).
    pub(super) fn permit_scenario(self, provider: &str, skipped: &str) -> bool {
        let (name, why) = skipped.split_once(' ').unwrap_or((skipped, ""));
        let listed = name.strip_suffix(':').unwrap_or(why);
        // What follows in parentheses says how to get it.
        let listed = listed.split(" (").next().unwrap_or(listed);
        self.permit(&format!("{provider} {listed}"))
    }

    fn permit(self, skip: &str) -> bool {
        self == Self::Any || LIST.lines().any(|line| line == skip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::lacks_by_design("sandbox", "real-chart needs real nodes", true)]
    #[case::lacks_a_tool(
        "local",
        "dashboard-prometheus needs Prometheus (Debian's package prometheus)",
        true
    )]
    #[case::lost("sandbox", "kill-9 needs fault injection", false)]
    #[case::of_another_provider("node", "real-chart needs real nodes", false)]
    #[case::a_case("sandbox", "rules/library-urls: functions of URLs", true)]
    #[case::another_case("sandbox", "rules/library-ips: functions of URLs", false)]
    #[case::the_provider("local", "provider-local cannot start a control plane", false)]
    #[case::nothing_said("local", "a", false)]
    fn a_skip_must_be_in_the_list(
        #[case] provider: &str,
        #[case] skipped: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(Skips::Listed.permit_scenario(provider, skipped), expected);
        assert!(Skips::Any.permit_scenario(provider, skipped));
    }
}
