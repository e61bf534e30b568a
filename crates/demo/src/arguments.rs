//! The command line.

use belayer::arguments::number;
use clap::Parser;

/// The help text below the options.
const HELP: &str = "\
Exit codes:
  0  all chapters completed and all invariants hold
  1  an invariant is violated, an object is left, or the demo was interrupted
     before the checks
  2  wrong usage";

/// Show Belayer at work: an API server in this process, simulated users, and
/// Belayer. A run takes half a minute
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "cargo xtask demo", version, max_term_width = 80, after_help = HELP)]
pub struct Demo {
    /// Speed factor
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed)]
    pub speed: f64,

    /// Seed of the workload
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(0..=u64::MAX))]
    pub seed: u64,

    /// Keep the API server running after the end, until Ctrl-C
    #[arg(long)]
    pub keep_running: bool,

    /// Port of the API server on 127.0.0.1; 0 picks a free one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=u16::MAX))]
    pub port: u16,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.1..=1_000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a number from 0.1 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0")]
    #[case("-1")]
    #[case("NaN")]
    #[case("inf")]
    #[case("fast")]
    fn an_invalid_speed_is_refused(#[case] speed: &str) {
        let speed = format!("--speed={speed}");
        assert!(Demo::try_parse_from(["demo", &speed]).is_err());
    }

    #[rstest]
    #[case("--seed=x")]
    #[case("--seed=-1")]
    #[case("--port=65536")]
    fn an_invalid_number_names_the_expected_form(#[case] argument: &str) {
        let error = Demo::try_parse_from(["demo", argument]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("expected a whole number from 0 to "),
            "{text}"
        );
    }
}
