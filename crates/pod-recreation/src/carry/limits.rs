//! What the admission plugin LimitRanger put into a pod's containers: it writes down what, in an
//! annotation, so that it can be taken out again. The next create gets the defaults of its own day.

use serde_json::{Map, Value};

/// Where the plugin writes what it did.
pub(super) const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// How what it writes begins; then parts such as `cpu, memory request for container main`, separated by
/// semicolons.
const BEGINS: &str = "LimitRanger plugin set: ";

/// Takes out what `told` says was put in. What cannot be read says nothing.
pub(super) fn undo(spec: &mut Map<String, Value>, told: &str) {
    let Some(parts) = told.strip_prefix(BEGINS) else {
        return;
    };
    for part in parts.split("; ") {
        if let Some(part) = Part::read(part) {
            part.undo(spec);
        }
    }
}

/// One part: some resources of one side of one container.
struct Part<'a> {
    resources: Vec<&'a str>,
    /// `requests` or `limits`.
    side: &'static str,
    /// `containers` or `initContainers`.
    list: &'static str,
    container: &'a str,
}

impl<'a> Part<'a> {
    fn read(part: &'a str) -> Option<Self> {
        let sides = [(" request for ", "requests"), (" limit for ", "limits")];
        let (resources, side, whose) = sides.into_iter().find_map(|(word, side)| {
            let (resources, whose) = part.split_once(word)?;
            Some((resources, side, whose))
        })?;
        let lists = [
            ("container ", "containers"),
            ("init container ", "initContainers"),
        ];
        let (list, container) = lists
            .into_iter()
            .find_map(|(word, list)| Some((list, whose.strip_prefix(word)?)))?;
        Some(Self {
            resources: resources.split(", ").collect(),
            side,
            list,
            container,
        })
    }

    fn undo(&self, spec: &mut Map<String, Value>) {
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
            side.remove(*resource);
        }
        if side.is_empty() {
            sides.remove(self.side);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

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
    fn what_the_plugin_put_in_goes_and_what_the_user_wrote_stays() {
        let mut spec = spec();
        undo(
            &mut spec,
            "LimitRanger plugin set: cpu request for container main; memory limit for container main; \
             cpu limit for init container init",
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

    #[rstest]
    #[case::nothing("")]
    #[case::other_words("cpu request for container main")]
    #[case::no_such_container("LimitRanger plugin set: cpu request for container other")]
    #[case::no_such_side("LimitRanger plugin set: cpu request for container side")]
    #[case::cut_off("LimitRanger plugin set: cpu requ")]
    fn what_cannot_be_read_changes_nothing(#[case] told: &str) {
        let mut changed = spec();
        undo(&mut changed, told);
        assert_eq!(changed, spec());
    }
}
