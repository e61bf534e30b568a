//! Selectors of the command line, in kubectl's form: `app=web,tier in (a,b),!legacy`.

use std::sync::Arc;

use super::{Operator, Requirement, Selector};

/// An invalid selector. Returned when a [`Selector`] is parsed; see the [example](crate::selection).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid label selector {0:?} (example: app=web, tier in (a,b) or !legacy)")]
pub struct ParseSelectorError(String);

impl std::str::FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        let requirements: Option<Vec<_>> = split(text).into_iter().map(requirement).collect();
        let requirements = requirements.ok_or_else(|| ParseSelectorError(text.to_owned()))?;
        Ok(Self::new(requirements))
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

fn requirement(part: &str) -> Option<Requirement> {
    let part = part.trim();
    let (name, operator) = if let Some(name) = part.strip_prefix('!') {
        (name, Operator::DoesNotExist)
    } else if let Some((name, value)) = part.split_once("!=") {
        (name, Operator::NotIn(values(value)))
    } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (name, Operator::In(values(value)))
    } else if let Some((head, listed)) = part.split_once('(') {
        let listed = values(listed.strip_suffix(')')?);
        match head.trim().rsplit_once(char::is_whitespace)? {
            (name, "in") => (name, Operator::In(listed)),
            (name, "notin") => (name, Operator::NotIn(listed)),
            _ => return None,
        }
    } else {
        (part, Operator::Exists)
    };
    Requirement::new(name.trim(), operator).ok()
}

fn values(listed: &str) -> Box<[Arc<str>]> {
    listed.split(',').map(|value| value.trim().into()).collect()
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
        let labels = [("app", "web"), ("tier", "back")].into_iter().collect();
        let selector: Selector = if text.is_empty() {
            Selector::default()
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
    #[case("app=a=b")]
    #[case("app=a b")]
    #[case("!a!b")]
    fn what_is_none_is_refused(#[case] text: &str) {
        assert!(text.parse::<Selector>().is_err(), "{text}");
    }
}
