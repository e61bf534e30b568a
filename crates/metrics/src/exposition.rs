//! A strict parser of Prometheus' text format, for tests, scenarios and `status`.
//!
//! It is stricter than Prometheus: what a scraper tolerates (a sample without a type, a family in
//! two parts, a histogram whose buckets decrease) is an error here.
//!
//! ```
//! use belayer_metrics::exposition;
//!
//! let text = "# HELP pods_total Pods.\n# TYPE pods_total counter\npods_total{phase=\"Failed\"} 2\n";
//! let families = exposition::parse(text)?;
//! assert_eq!(families["pods_total"].value(&[("phase", "Failed")]), Some(2.0));
//! # Ok::<(), exposition::ParseError>(())
//! ```

use std::collections::{BTreeMap, HashSet};

/// The scraped families by name. Returned by [`parse`], as in the
/// [example](self).
pub type Families = BTreeMap<String, Family>;

/// All series of one metric. The [module's example](self) reads one of its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Family {
    /// The text of `# HELP`.
    pub help: Option<String>,
    /// The text of `# TYPE`: `counter`, `gauge`, `histogram` or `summary`.
    pub kind: String,
    /// Its samples, in order.
    pub samples: Vec<Sample>,
}

/// One line. Part of a [`Family`], which
/// [`parse`] returns.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name, including `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl Family {
    /// The value of the series with exactly these labels.
    pub fn value(&self, labels: &[(&str, &str)]) -> Option<f64> {
        self.samples
            .iter()
            .find(|sample| {
                sample.labels.len() == labels.len()
                    && labels.iter().all(|(name, value)| {
                        sample.labels.get(*name).is_some_and(|have| have == value)
                    })
            })
            .map(|sample| sample.value)
    }

    /// The sum over all series, or over one part of a histogram (`_count`, `_sum`).
    pub fn sum(&self, suffix: &str) -> f64 {
        self.samples
            .iter()
            .filter(|s| s.name.ends_with(suffix))
            .map(|s| s.value)
            .sum()
    }
}

/// Why a text is not a valid exposition. Returned by [`parse`], as in
/// the [example](self).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// An invalid line.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The error.
        what: &'static str,
    },
    /// An inconsistent histogram.
    #[error("histogram {family}: {what}")]
    Histogram {
        /// Its name.
        family: String,
        /// The inconsistency.
        what: &'static str,
    },
}

/// Parses a whole exposition. The [module's example](self) parses a counter.
///
/// # Errors
/// For the first invalid line or histogram.
pub fn parse(text: &str) -> Result<Families, ParseError> {
    let mut families = Families::new();
    let mut current = String::new();
    let mut series = HashSet::new();
    for (index, text) in text.lines().enumerate() {
        let fail = |what| ParseError::Line {
            line: index + 1,
            what,
        };
        if text.is_empty() {
            continue;
        }
        if let Some(comment) = text.strip_prefix("# ") {
            let (keyword, rest) = comment
                .split_once(' ')
                .ok_or(fail("a comment without a keyword"))?;
            let (name, rest) = rest.split_once(' ').ok_or(fail("a comment without text"))?;
            if !is_name(name) {
                return Err(fail("an invalid metric name"));
            }
            let family = families.entry(name.to_owned()).or_default();
            if !family.samples.is_empty() {
                return Err(fail("a family in two parts"));
            }
            match keyword {
                "HELP" if family.help.is_none() => family.help = Some(rest.to_owned()),
                "TYPE" if family.kind.is_empty() => {
                    if !["counter", "gauge", "histogram", "summary"].contains(&rest) {
                        return Err(fail("an unknown type"));
                    }
                    family.kind = rest.to_owned();
                }
                _ => return Err(fail("a duplicate HELP or TYPE, or another comment")),
            }
            current = name.to_owned();
            continue;
        }
        let sample = sample(text).map_err(fail)?;
        let family = families
            .get_mut(&current)
            .ok_or(fail("a sample without a type"))?;
        if family.kind.is_empty() {
            return Err(fail("a sample without a type"));
        }
        if !belongs(&sample.name, &current, &family.kind) {
            return Err(fail("a sample outside its family"));
        }
        if family.kind == "counter" && sample.value < 0.0 {
            return Err(fail("a counter below zero"));
        }
        if !series.insert((sample.name.clone(), sample.labels.clone())) {
            return Err(fail("a duplicate series"));
        }
        family.samples.push(sample);
    }
    for (name, family) in families
        .iter()
        .filter(|(_, family)| family.kind == "histogram")
    {
        check_histogram(family).map_err(|what| ParseError::Histogram {
            family: name.clone(),
            what,
        })?;
    }
    Ok(families)
}

fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match (sample.strip_prefix(family), kind) {
        (Some("_bucket"), "histogram") => true,
        (Some("_sum" | "_count"), "histogram" | "summary") => true,
        (Some(""), kind) => kind != "histogram",
        _ => false,
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn sample(line: &str) -> Result<Sample, &'static str> {
    let end = line.find(['{', ' ']).ok_or("a sample without a value")?;
    let (name, rest) = line.split_at(end);
    if !is_name(name) {
        return Err("an invalid metric name");
    }
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = value.strip_prefix(' ').ok_or("no space before the value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        value => value.parse().map_err(|_| "a value that is not a number")?,
    };
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// Parses `a="b",c="d"}` and returns the rest of the text after the brace.
fn labels(mut rest: &str) -> Result<(BTreeMap<String, String>, &str), &'static str> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(name) || name.contains(':') {
            return Err("an invalid label name");
        }
        let (value, after) = quoted(after)?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err("a duplicate label");
        }
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok((labels, after.strip_prefix('}').ok_or("no closing brace")?)),
        }
    }
}

fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                _ => return Err("an unknown escape"),
            },
            c => value.push(c),
        }
    }
    Err("no closing quote")
}

/// One series of a histogram, collected from several lines.
#[derive(Default)]
struct Histogram {
    /// Upper bounds and counts, in order.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
}

impl Histogram {
    fn add(&mut self, sample: &Sample) -> Result<(), &'static str> {
        if sample.name.ends_with("_bucket") {
            let bound = sample.labels.get("le").ok_or("a bucket without a bound")?;
            let bound = match bound.as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().map_err(|_| "a bound that is not a number")?,
            };
            self.buckets.push((bound, sample.value));
        } else if sample.name.ends_with("_count") {
            self.count = Some(sample.value);
        } else {
            self.sum = Some(sample.value);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), &'static str> {
        if !self
            .buckets
            .is_sorted_by(|(bound, n), (next, more)| bound < next && n <= more)
        {
            return Err("buckets that decrease");
        }
        let total = self.buckets.last().filter(|(bound, _)| bound.is_infinite());
        let Some((_, total)) = total else {
            return Err("no bucket +Inf");
        };
        if self.count != Some(*total) {
            return Err("_count is not the bucket +Inf");
        }
        self.sum.map(drop).ok_or("no _sum")
    }
}

fn check_histogram(family: &Family) -> Result<(), &'static str> {
    let mut series: BTreeMap<BTreeMap<&str, &str>, Histogram> = BTreeMap::new();
    for sample in &family.samples {
        let labels = sample
            .labels
            .iter()
            .filter(|(name, _)| *name != "le")
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        series.entry(labels).or_default().add(sample)?;
    }
    series.values().try_for_each(Histogram::check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn a_small_exposition_is_parsed() {
        let families = parse(
            "# HELP a_total What.\n# TYPE a_total counter\na_total{x=\"q\\\"\\n\\\\\"} 2\n\
             \n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 3\nh_sum 4\nh_count 3\n",
        )
        .unwrap();
        assert_eq!(families["a_total"].value(&[("x", "q\"\n\\")]), Some(2.0));
        assert_eq!(families["h"].sum("_count"), 3.0);
        assert_eq!(families["a_total"].value(&[]), None);
    }

    #[rstest]
    #[case::no_type("a 1\n", "a sample without a type")]
    #[case::help_without_type("# HELP a b\na 1\n", "a sample without a type")]
    #[case::unknown_type("# TYPE a b\n", "an unknown type")]
    #[case::two_types("# TYPE a gauge\n# TYPE a gauge\n", "a duplicate HELP or TYPE")]
    #[case::two_pieces("# TYPE a gauge\na 1\n# TYPE b gauge\n# HELP a x\n", "two parts")]
    #[case::foreign("# TYPE a gauge\nb 1\n", "outside its family")]
    #[case::negative("# TYPE a counter\na -1\n", "below zero")]
    #[case::twice("# TYPE a gauge\na 1\na 2\n", "a duplicate series")]
    #[case::label_twice("# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n", "a duplicate label")]
    #[case::open_quote("# TYPE a gauge\na{x=\"1} 1\n", "no closing quote")]
    #[case::open_brace("# TYPE a gauge\na{x=\"1\" 1\n", "no closing brace")]
    #[case::no_number("# TYPE a gauge\na one\n", "not a number")]
    #[case::bad_name("# TYPE 1a gauge\n", "an invalid metric name")]
    #[case::bad_label("# TYPE a gauge\na{1x=\"1\"} 1\n", "an invalid label name")]
    #[case::no_inf(
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        "+Inf"
    )]
    #[case::falling(
        "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        "decrease"
    )]
    #[case::count(
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
        "_count"
    )]
    fn invalid_expositions_are_refused(#[case] text: &str, #[case] why: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
