//! The members of Argo Workflows' container sets.

use std::sync::Arc;

use serde::Deserialize;

use super::limits;

/// The environment variable in which Argo Workflows passes the pod's template to its own
/// containers.
const TEMPLATE: &str = "ARGO_TEMPLATE";

/// The members of a container set, from the template that Argo writes into the pod. The status of
/// a pod does not distinguish members from sidecars. Part of [`Pod`](crate::slim::Pod).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ContainerSet {
    /// The pod is not a container set: only the container `main` determines the result.
    #[default]
    None,
    /// The pod is a container set with these members.
    Of(Box<[Arc<str>]>),
    /// The template is not in the pod, because it is too large and is in a ConfigMap, or it cannot
    /// be decoded.
    Unknown,
}

impl ContainerSet {
    /// Evaluates an environment variable of one of the pod's containers.
    pub(super) fn add_variable(&mut self, variable: &str, value: &str) {
        if variable != TEMPLATE || *self == Self::Unknown {
            return;
        }
        let found = match serde_json::from_str::<Template>(value) {
            Ok(Template {
                container_set: None,
            }) => return,
            // No pod has so many containers, and no container such a name (T3).
            Ok(Template {
                container_set: Some(Set { containers }),
            }) if containers.len() > limits::CONTAINERS
                || containers
                    .iter()
                    .any(|one| limits::container_name(&one.name) != one.name) =>
            {
                Self::Unknown
            }
            Ok(Template {
                container_set: Some(Set { containers }),
            }) => Self::Of(containers.into_iter().map(|one| one.name.into()).collect()),
            Err(_) => Self::Unknown,
        };
        *self = if *self == Self::None || *self == found {
            found
        } else {
            Self::Unknown
        };
    }
}

#[derive(Deserialize)]
struct Template {
    #[serde(rename = "containerSet")]
    container_set: Option<Set>,
}

#[derive(Deserialize)]
struct Set {
    containers: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn of(names: &[&str]) -> ContainerSet {
        ContainerSet::Of(names.iter().map(|name| Arc::from(*name)).collect())
    }

    #[rstest]
    #[case::no_template(&[("A", "{}")], ContainerSet::None)]
    #[case::a_container(&[(TEMPLATE, r#"{"name":"a","container":{"image":"x"},"sidecars":[{"name":"side"}]}"#)], ContainerSet::None)]
    #[case::a_set(&[(TEMPLATE, r#"{"containerSet":{"containers":[{"name":"one"},{"name":"main","dependencies":["one"]}]}}"#)], of(&["one", "main"]))]
    #[case::in_a_config_map(&[(TEMPLATE, "offloaded")], ContainerSet::Unknown)]
    #[case::two_of_them(&[(TEMPLATE, r#"{"containerSet":{"containers":[{"name":"one"}]}}"#), (TEMPLATE, r#"{"containerSet":{"containers":[]}}"#)], ContainerSet::Unknown)]
    #[case::one_that_contradicts_itself(&[(TEMPLATE, "offloaded"), (TEMPLATE, "{}")], ContainerSet::Unknown)]
    #[case::one_that_repeats_itself(&[(TEMPLATE, r#"{"containerSet":{"containers":[{"name":"one"}]}}"#), (TEMPLATE, "{}")], of(&["one"]))]
    #[case::a_set_of_another_shape(&[(TEMPLATE, r#"{"containerSet":[]}"#)], ContainerSet::Unknown)]
    #[case::not_what_a_user_wrote_into_it(&[(TEMPLATE, r#"{"resource":{"manifest":"{\"containerSet\":{}}"}}"#)], ContainerSet::None)]
    fn a6_the_template_contains_the_members_of_a_container_set(
        #[case] env: &[(&str, &str)],
        #[case] expected: ContainerSet,
    ) {
        let mut set = ContainerSet::default();
        for (name, value) in env {
            set.add_variable(name, value);
        }
        assert_eq!(set, expected);
    }
}
