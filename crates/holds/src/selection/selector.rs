use std::sync::Arc;

use belayer_core::slim::Labels;

use super::labels::{InvalidLabel, MatchLabels, check_name, check_value};

/// A label selector with the API's meaning: all requirements hold. The [module's
/// example](crate::selection) makes one of a requirement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Box<[Requirement]>);

/// One requirement on one label. The [module's example](crate::selection) makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    name: Arc<str>,
    operator: Operator,
}

/// What a requirement asks of its label. Part of a [`Requirement`](crate::selection::Requirement),
/// as in the [example](crate::selection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// It is present with one of these values.
    In(Box<[Arc<str>]>),
    /// It is absent, or present with another value.
    NotIn(Box<[Arc<str>]>),
    /// It is present.
    Exists,
    /// It is absent.
    DoesNotExist,
}

impl Requirement {
    /// Validates names and values by the API's rules.
    ///
    /// # Errors
    /// If the API would reject the label's name or one of the values.
    pub fn new(name: impl Into<Arc<str>>, operator: Operator) -> Result<Self, InvalidLabel> {
        let name = name.into();
        check_name(&name)?;
        if let Operator::In(values) | Operator::NotIn(values) = &operator {
            values
                .iter()
                .try_for_each(|value| check_value(&name, value))?;
        }
        Ok(Self { name, operator })
    }

    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.name);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| contains(values, value)),
            Operator::NotIn(values) => value.is_none_or(|value| !contains(values, value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

fn contains(values: &[Arc<str>], value: &str) -> bool {
    values.iter().any(|have| **have == *value)
}

impl Selector {
    /// All of these requirements.
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self(requirements.into_iter().collect())
    }

    /// The requirements of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0.into_iter().chain(other.0).collect())
    }

    /// Whether it has no requirements and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels meet all requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// The labels it reads.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| &*requirement.name)
    }

    /// Whether everything it matches also has these labels; `false` if there are none.
    pub fn implies(&self, labels: &MatchLabels) -> bool {
        !labels.is_empty()
            && labels.iter().all(|(name, value)| {
                self.0.iter().any(|requirement| {
                    *requirement.name == *name
                        && matches!(&requirement.operator, Operator::In(values)
                            if values.iter().all(|have| **have == *value))
                })
            })
    }
}

/// The namespaces in which a profile selects. [`namespaces`](crate::selection::config::namespaces)
/// makes them of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Only these; empty for all.
    pub include: Box<[Arc<str>]>,
    /// Never these.
    pub exclude: Box<[Arc<str>]>,
}

impl Namespaces {
    /// Whether the namespace is selected.
    pub fn contains(&self, namespace: &str) -> bool {
        (self.include.is_empty() || contains(&self.include, namespace))
            && !contains(&self.exclude, namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn one(operator: Operator) -> Selector {
        Selector::new([Requirement::new("app", operator).unwrap()])
    }

    fn values(values: &[&str]) -> Box<[Arc<str>]> {
        values.iter().copied().map(Arc::from).collect()
    }

    #[rstest]
    #[case::in_with_a_listed_value(Operator::In(values(&["a", "b"])), Some("b"), true)]
    #[case::in_with_another_value(Operator::In(values(&["a", "b"])), Some("c"), false)]
    #[case::in_without_the_label(Operator::In(values(&["a"])), None, false)]
    #[case::in_with_the_empty_value(Operator::In(values(&[""])), Some(""), true)]
    #[case::the_empty_value_is_not_absence(Operator::In(values(&[""])), None, false)]
    #[case::not_in_with_a_listed_value(Operator::NotIn(values(&["a"])), Some("a"), false)]
    #[case::not_in_with_another_value(Operator::NotIn(values(&["a"])), Some("b"), true)]
    #[case::not_in_without_the_label(Operator::NotIn(values(&["a"])), None, true)]
    #[case::exists_with_any_value(Operator::Exists, Some(""), true)]
    #[case::exists_without_the_label(Operator::Exists, None, false)]
    #[case::does_not_exist_with_it(Operator::DoesNotExist, Some("a"), false)]
    #[case::does_not_exist_without_it(Operator::DoesNotExist, None, true)]
    fn operators(#[case] operator: Operator, #[case] value: Option<&str>, #[case] matches: bool) {
        let labels: Labels = value.map(|value| ("app", value)).into_iter().collect();
        assert_eq!(one(operator).matches(&labels), matches);
    }

    #[test]
    fn all_requirements_must_hold() {
        let both = one(Operator::Exists).and(Selector::new([Requirement::new(
            "tier",
            Operator::DoesNotExist,
        )
        .unwrap()]));
        assert!(both.matches(&[("app", "a")].into_iter().collect()));
        assert!(!both.matches(&[("app", "a"), ("tier", "b")].into_iter().collect()));
        assert_eq!(both.names().collect::<Vec<_>>(), ["app", "tier"]);
    }

    #[test]
    fn the_empty_selector_matches_everything() {
        assert!(Selector::default().matches(&Labels::default()));
    }

    #[rstest]
    #[case::everywhere(&[], &[], "a", true)]
    #[case::included(&["a"], &[], "a", true)]
    #[case::not_included(&["a"], &[], "b", false)]
    #[case::excluded(&[], &["a"], "a", false)]
    #[case::excluded_wins(&["a"], &["a"], "a", false)]
    fn namespaces(
        #[case] include: &[&str],
        #[case] exclude: &[&str],
        #[case] namespace: &str,
        #[case] contained: bool,
    ) {
        let namespaces = Namespaces {
            include: values(include),
            exclude: values(exclude),
        };
        assert_eq!(namespaces.contains(namespace), contained);
    }
}
