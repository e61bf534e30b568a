//! Label selectors of the command line: `app=web,tier in (a,b),!legacy`.
//!
//! ```
//! use std::collections::BTreeMap;
//! use belayer_inspect::selector::LabelSelector;
//!
//! let selector: LabelSelector = "app in (web, db), !test".parse()?;
//! assert!(selector.matches(&BTreeMap::from([("app".to_owned(), "web".to_owned())])));
//! # Ok::<(), belayer_inspect::selector::SelectorError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, SelectorExt as _};

/// A label selector. The empty one matches everything. The [module's example](self) parses one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Expression>);

/// An invalid selector. Returned when a [selector](self) is parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector {0:?} (example: app=web, tier in (a,b) or !legacy)")]
pub struct SelectorError(String);

impl LabelSelector {
    /// Whether these labels match.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|expression| expression.matches(labels))
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::str::FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut expressions = Vec::new();
        for part in split(text) {
            let expression = parse(part.trim()).ok_or_else(|| SelectorError(text.to_owned()))?;
            expressions.push(expression);
        }
        Ok(Self(expressions))
    }
}

/// Splits at commas that are not between brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse(part: &str) -> Option<Expression> {
    if let Some(key) = part.strip_prefix('!') {
        return name(key).map(Expression::DoesNotExist);
    }
    for (operator, unequal) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = part.split_once(operator) {
            let (key, value) = (name(key)?, value.trim().to_owned());
            return Some(if unequal {
                Expression::NotEqual(key, value)
            } else {
                Expression::Equal(key, value)
            });
        }
    }
    let Some((head, values)) = part.split_once('(') else {
        return name(part).map(Expression::Exists);
    };
    let values: BTreeSet<String> = values
        .strip_suffix(')')?
        .split(',')
        .map(|value| value.trim().to_owned())
        .collect();
    let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
    match operator {
        "in" => Some(Expression::In(name(key)?, values)),
        "notin" => Some(Expression::NotIn(name(key)?, values)),
        _ => None,
    }
}

fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    (!text.is_empty() && text.chars().all(good)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("", true)]
    #[case("app=web", true)]
    #[case("app==web,tier", true)]
    #[case("app!=web", false)]
    #[case("tier in (front, back)", true)]
    #[case("tier notin (front,back)", false)]
    #[case("!legacy,app", true)]
    #[case("!app", false)]
    fn selectors_mean_what_kubectl_means(#[case] text: &str, #[case] expected: bool) {
        let labels = [("app", "web"), ("tier", "back")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let selector: LabelSelector = if text.is_empty() {
            LabelSelector::default()
        } else {
            text.parse().unwrap()
        };
        assert_eq!(selector.matches(&labels), expected);
    }

    #[rstest]
    #[case("")]
    #[case("a b")]
    #[case("tier in back")]
    #[case("tier among (back)")]
    #[case("app=web,")]
    fn what_is_none_is_refused(#[case] text: &str) {
        assert!(text.parse::<LabelSelector>().is_err(), "{text}");
    }
}
