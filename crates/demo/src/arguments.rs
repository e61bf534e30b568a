//! The command line.

use clap::Parser;

/// What stands below the options.
const HELP: &str = "\
Exit codes:
  0  the story came to its end and every promise was kept
  1  a promise was broken, something is left, or it was interrupted before
     anything could be checked
  2  wrong usage";

/// Show Belayer live, in half a minute: an API server in this process, people who
/// delete things, and Belayer
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "cargo xtask demo", version, max_term_width = 80, after_help = HELP)]
pub struct Demo {
    /// How many times faster than usual
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed)]
    pub speed: f64,

    /// Which workload: the same number gives the same one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Go on serving after the end, until Ctrl-C
    #[arg(long)]
    pub keep_running: bool,

    /// Port of the API server on 127.0.0.1; 0 is any free one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub port: u16,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.1..=1_000.0).contains(&speed) => Ok(speed),
        _ => Err("a number from 0.1 to 1000 is needed".to_owned()),
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
    fn a_speed_is_a_sane_number(#[case] speed: &str) {
        let speed = format!("--speed={speed}");
        assert!(Demo::try_parse_from(["demo", &speed]).is_err());
    }
}
