//! Removes what the admission plugin LimitRanger added to a pod's containers, which it lists in an annotation. At the
//! next create it adds the defaults of that time.

use serde_json::{Map, Value, json};

/// The annotation that lists what the plugin added.
pub(super) const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Prefix of its value. Parts such as `cpu, memory request for container main` follow, separated by semicolons.
const PREFIX: &str = "LimitRanger plugin set: ";

/// Removes what `annotation` lists, except what a user has set since through the subresource `resize`, by those entries
/// of `managedFields`. Parts of another form are ignored.
pub(super) fn undo(spec: &mut Map<String, Value>, annotation: &str, resized: &[&Value]) {
    let Some(parts) = annotation.strip_prefix(PREFIX) else {
        return;
    };
    for part in parts.split("; ") {
        if let Some(part) = Part::parse(part) {
            part.undo(spec, resized);
        }
    }
}

/// Whether `admitted`, a pod as admission returned it, has every resource of `pod`, of whatever amount.
pub(crate) fn has_resources_of(admitted: &Value, pod: &Value) -> bool {
    let containers = |pod: &Value, list: &str| pod["spec"][list].as_array().cloned();
    super::CONTAINERS.into_iter().all(|list| {
        let admitted = containers(admitted, list).unwrap_or_default();
        let wanted = containers(pod, list).unwrap_or_default();
        wanted.iter().all(|wanted| {
            let admitted = admitted.iter().find(|one| one["name"] == wanted["name"]);
            ["requests", "limits"].into_iter().all(|side| {
                let resources = wanted["resources"][side].as_object();
                let mut names = resources.into_iter().flatten().map(|(name, _)| name);
                names.all(|name| {
                    admitted.is_some_and(|one| one["resources"][side].get(name).is_some())
                })
            })
        })
    })
}

/// Removes the resources that the containers of `recorded` do not have.
pub(super) fn retain(spec: &mut Map<String, Value>, recorded: &Value) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let recorded = recorded[list].as_array();
        for (container, recorded) in containers
            .into_iter()
            .flatten()
            .zip(recorded.into_iter().flatten())
        {
            let recorded = &recorded["resources"];
            let sides = container
                .get_mut("resources")
                .and_then(Value::as_object_mut);
            let Some(sides) = sides else {
                continue;
            };
            for side in ["requests", "limits"] {
                let Some(kept) = recorded.get(side) else {
                    sides.remove(side);
                    continue;
                };
                if let Some(side) = sides.get_mut(side).and_then(Value::as_object_mut) {
                    side.retain(|resource, _| kept.get(resource).is_some());
                }
            }
        }
    }
}

/// One part: resources of one container, in its requests or its limits.
struct Part<'a> {
    resources: Vec<&'a str>,
    /// `requests` or `limits`.
    side: &'static str,
    /// `containers` or `initContainers`.
    list: &'static str,
    container: &'a str,
}

impl<'a> Part<'a> {
    fn parse(part: &'a str) -> Option<Self> {
        let sides = [(" request for ", "requests"), (" limit for ", "limits")];
        let (resources, side, target) = sides.into_iter().find_map(|(separator, side)| {
            let (resources, target) = part.split_once(separator)?;
            Some((resources, side, target))
        })?;
        let lists = [
            ("container ", "containers"),
            ("init container ", "initContainers"),
        ];
        let (list, container) = lists
            .into_iter()
            .find_map(|(prefix, list)| Some((list, target.strip_prefix(prefix)?)))?;
        Some(Self {
            resources: resources.split(", ").collect(),
            side,
            list,
            container,
        })
    }

    fn is_resized(&self, resource: &str, resized: &[&Value]) -> bool {
        let (list, side) = (format!("f:{}", self.list), format!("f:{}", self.side));
        let container = format!("k:{}", json!({ "name": self.container }));
        resized.iter().any(|entry| {
            let resources = &entry["fieldsV1"]["f:spec"][&list][&container]["f:resources"];
            resources[&side].get(format!("f:{resource}")).is_some()
        })
    }

    fn undo(&self, spec: &mut Map<String, Value>, resized: &[&Value]) {
        let containers = spec.get_mut(self.list).and_then(Value::as_array_mut);
        let container = containers
            .into_iter()
            .flatten()
            .find(|container| container["name"] == self.container);
        let Some(resources) = container.and_then(|c| c.get_mut("resources")) else {
            return;
        };
        let Some(sides) = resources.as_object_mut() else {
            return;
        };
        let Some(side) = sides.get_mut(self.side).and_then(Value::as_object_mut) else {
            return;
        };
        for resource in &self.resources {
            if !self.is_resized(resource, resized) {
                side.remove(*resource);
            }
        }
        if side.is_empty() {
            sides.remove(self.side);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn spec() -> Map<String, Value> {
        let spec = json!({
            "initContainers": [{ "name": "init", "resources": { "limits": { "cpu": "1" } } }],
            "containers": [
                { "name": "main", "resources": {
                    "requests": { "cpu": "100m", "memory": "1Gi" }, "limits": { "memory": "2Gi" } } },
                { "name": "side", "resources": {} },
            ],
        });
        spec.as_object().cloned().unwrap()
    }

    #[test]
    fn only_what_the_plugin_added_is_removed() {
        let mut spec = spec();
        undo(
            &mut spec,
            "LimitRanger plugin set: cpu request for container main; memory limit for container main; \
             cpu limit for init container init",
            &[],
        );
        let expected = json!({
            "initContainers": [{ "name": "init", "resources": {} }],
            "containers": [
                { "name": "main", "resources": { "requests": { "memory": "1Gi" } } },
                { "name": "side", "resources": {} },
            ],
        });
        assert_eq!(Value::Object(spec), expected);
    }

    /// An older pod gets its resources in place. The defaults would take them back.
    #[test]
    fn what_a_user_has_resized_is_kept() {
        let mut spec = spec();
        let main = json!({ "f:resources": { "f:limits": { "f:memory": {} } } });
        let resize = json!({ "manager": "kubectl", "subresource": "resize", "fieldsV1": {
            "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": main } } } });
        undo(
            &mut spec,
            "LimitRanger plugin set: cpu request for container main; memory limit for container main; \
             cpu limit for init container init",
            &[&resize],
        );
        let main = &spec["containers"][0]["resources"];
        assert_eq!(
            *main,
            json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "2Gi" } })
        );
    }

    #[rstest]
    #[case::empty("")]
    #[case::without_the_prefix("cpu request for container main")]
    #[case::no_such_container("LimitRanger plugin set: cpu request for container other")]
    #[case::no_such_side("LimitRanger plugin set: cpu request for container side")]
    #[case::cut_off("LimitRanger plugin set: cpu requ")]
    fn an_annotation_of_another_form_changes_nothing(#[case] annotation: &str) {
        let mut changed = spec();
        undo(&mut changed, annotation, &[]);
        assert_eq!(changed, spec());
    }
}
