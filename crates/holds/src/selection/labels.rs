use std::sync::Arc;

use belayer_core::slim::Labels;

/// Labels, all of which are required with these values.
///
/// An empty list matches nothing: the absence of a condition must not count as evidence.
///
/// The [module's example](crate::selection) compares one with labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchLabels(Box<[(Arc<str>, Arc<str>)]>);

impl MatchLabels {
    /// Validates names and values by the API's rules.
    ///
    /// # Errors
    /// The first label that the API would reject.
    pub fn new<N: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, InvalidLabel> {
        let mut checked = Vec::new();
        for (name, value) in pairs {
            let (name, value) = (name.into(), value.into());
            check_name(&name)?;
            check_value(&name, &value)?;
            checked.push((name, value));
        }
        Ok(Self(checked.into()))
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of them are in `labels`; `false` if there are none.
    pub fn found_in(&self, labels: &Labels) -> bool {
        !self.is_empty()
            && self
                .0
                .iter()
                .all(|(name, value)| labels.get(name) == Some(value))
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// An invalid label name or value, which no object can have. Returned by
/// [`Requirement::new`](crate::selection::Requirement::new); see the [example](crate::selection).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabel {
    /// The name.
    #[error(
        "invalid label name {name:?}: use letters, digits, '-', '_' and '.' (at most 63), \
         if need be after a DNS name and '/'"
    )]
    Name {
        /// The given value.
        name: Arc<str>,
    },
    /// The value.
    #[error(
        "invalid label value {value:?}: use letters, digits, '-', '_' and '.' (at most 63), \
         with a letter or digit at both ends"
    )]
    Value {
        /// Name of the label.
        name: Arc<str>,
        /// The given value.
        value: Arc<str>,
    },
}

impl InvalidLabel {
    /// The name of the label.
    pub fn name(&self) -> &str {
        match self {
            Self::Name { name } | Self::Value { name, .. } => name,
        }
    }
}

/// A qualified name, the form of label names in the API.
pub(super) fn check_name(name: &str) -> Result<(), InvalidLabel> {
    let (prefix, rest) = match name.split_once('/') {
        Some((prefix, rest)) => (Some(prefix), rest),
        None => (None, name),
    };
    let good = is_token(rest) && prefix.is_none_or(is_dns_subdomain);
    if good {
        Ok(())
    } else {
        Err(InvalidLabel::Name { name: name.into() })
    }
}

pub(super) fn check_value(name: &str, value: &str) -> Result<(), InvalidLabel> {
    if is_label_value(value) {
        return Ok(());
    }
    Err(InvalidLabel::Value {
        name: name.into(),
        value: value.into(),
    })
}

/// RFC 1123 subdomain: lower-case labels joined by dots, at most 253 characters. The example of
/// [`is_dns_label`](crate::selection::is_dns_label) has one.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| is_lower_token(label, 253))
}

/// RFC 1123 label, the form of namespace names.
///
/// ```
/// use belayer_holds::selection::{is_dns_label, is_dns_subdomain};
///
/// assert!(is_dns_label("shop") && !is_dns_label("shop.example.com"));
/// assert!(is_dns_subdomain("shop.example.com"));
/// ```
pub fn is_dns_label(text: &str) -> bool {
    is_lower_token(text, 63)
}

/// Whether a label may have this value: at most 63 characters, so not every name of an object.
/// Names of namespaces have another form: [`is_dns_label`](crate::selection::is_dns_label).
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_token(text)
}

fn is_token(text: &str) -> bool {
    has_ends(text, |b| b.is_ascii_alphanumeric())
        && text.len() <= 63
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_lower_token(text: &str, longest: usize) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    has_ends(text, plain) && text.len() <= longest && text.bytes().all(|b| plain(b) || b == b'-')
}

fn has_ends(text: &str, good: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [first, .., last] => good(*first) && good(*last),
        [only] => good(*only),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[rstest]
    #[case::all_there(&[("a", "1"), ("b", "2")], true)]
    #[case::more_than_asked(&[("a", "1"), ("b", "2"), ("c", "3")], true)]
    #[case::one_is_missing(&[("a", "1")], false)]
    #[case::one_differs(&[("a", "1"), ("b", "3")], false)]
    fn all_of_them_are_needed(#[case] have: &[(&str, &str)], #[case] found: bool) {
        let wanted = MatchLabels::new([("a", "1"), ("b", "2")]).unwrap();
        assert_eq!(wanted.found_in(&labels(have)), found);
    }

    #[test]
    fn no_condition_is_no_evidence() {
        assert!(!MatchLabels::default().found_in(&labels(&[("a", "1")])));
        assert!(!MatchLabels::default().found_in(&labels(&[])));
    }

    #[rstest]
    #[case("app", true)]
    #[case("App_v1.x-y", true)]
    #[case("workflows.argoproj.io/completed", true)]
    #[case("", false)]
    #[case("-app", false)]
    #[case("app-", false)]
    #[case("a b", false)]
    #[case("a/b/c", false)]
    #[case("/app", false)]
    #[case("example.com/", false)]
    #[case("Example.com/app", false)]
    #[case("a..b/app", false)]
    #[case("ümlaut", false)]
    #[case(
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        false
    )]
    fn names_follow_the_api(#[case] name: &str, #[case] good: bool) {
        assert_eq!(check_name(name).is_ok(), good);
    }

    #[rstest]
    #[case("", true)]
    #[case("true", true)]
    #[case("v1.2_a-b", true)]
    #[case("a/b", false)]
    #[case("_a", false)]
    #[case("a b", false)]
    fn values_follow_the_api(#[case] value: &str, #[case] good: bool) {
        assert_eq!(check_value("app", value).is_ok(), good);
    }
}
