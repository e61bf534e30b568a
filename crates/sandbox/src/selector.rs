//! Label and field selectors.

mod syntax;

use serde_json::Value;

use crate::kinds::ResourceInfo;
use crate::meta;

/// A selector that cannot be parsed, with the text of the 400. Returned when
/// [`Selectors`](crate::Selectors) are parsed. See the [crate's example](crate).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Invalid syntax of a label selector.
    #[error("{0}")]
    Label(String),
    /// Invalid syntax of a field selector.
    #[error("invalid selector: '{0}'; can't understand '{1}'")]
    Field(String, String),
    /// The kind does not support that field.
    #[error("field label not supported: {0}")]
    UnsupportedField(String),
    /// The kind supports metadata fields only.
    #[error(
        "\"{0}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    )]
    UnknownField(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Operator::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(than) => number().is_some_and(|n| n > *than),
            Operator::LessThan(than) => number().is_some_and(|n| n < *than),
        }
    }
}

/// A label selector. Part of [`Selectors`](crate::Selectors), which
/// [`Cluster::list`](crate::Cluster::list) takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Parses the wire syntax: `a=b, c!=d, e in (f, g), h notin (i), j, !k, l > 1`.
    ///
    /// # Errors
    /// Invalid syntax.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements = syntax::parse(text).map_err(SelectorError::Label)?;
        Ok(LabelSelector(requirements))
    }

    /// A `metav1.LabelSelector`; `None` if it is invalid.
    pub(crate) fn of(selector: &Value) -> Option<Self> {
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        let mut terms: Vec<String> = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let key = meta::text(expression, &["key"]);
            let values = expression.get("values").and_then(Value::as_array);
            let values: Vec<&str> = values
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let values = values.join(",");
            terms.push(match meta::text(expression, &["operator"]) {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                "DoesNotExist" => format!("!{key}"),
                _ => return None,
            });
        }
        LabelSelector::parse(&terms.join(",")).ok()
    }

    /// True when it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when the object's labels match.
    pub fn matches(&self, object: &Value) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = meta::at(object, &["metadata", "labels"]);
        self.0
            .iter()
            .all(|r| r.matches(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
    }
}

/// A field selector. Part of [`Selectors`](crate::Selectors), which
/// [`Cluster::list`](crate::Cluster::list) takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldTerm>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTerm {
    path: Vec<String>,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses the wire syntax (`a.b=c, d.e!=f`) for a kind at a version.
    ///
    /// # Errors
    /// Invalid syntax, or a field that the kind does not support.
    pub fn parse(text: &str, info: &ResourceInfo, version: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let signs = [("!=", false), ("==", true), ("=", true)];
            let term = signs.iter().find_map(|(sign, equal)| {
                let (field, value) = part.split_once(sign)?;
                Some((field.trim(), *equal, value.trim()))
            });
            let Some((field, equal, value)) = term else {
                return Err(SelectorError::Field(text.to_owned(), part.to_owned()));
            };
            let selectable = info
                .version(version)
                .map_or(&[][..], |v| v.selectable.as_slice());
            let namespace = field == "metadata.namespace" && info.namespaced();
            let known =
                field == "metadata.name" || namespace || selectable.iter().any(|s| s == field);
            if !known {
                let field = field.to_owned();
                return Err(match selectable {
                    [] if !info.custom => SelectorError::UnknownField(field),
                    _ => SelectorError::UnsupportedField(field),
                });
            }
            let path = field.split('.').map(str::to_owned).collect();
            terms.push(FieldTerm {
                path,
                equal,
                value: value.to_owned(),
            });
        }
        Ok(FieldSelector(terms))
    }

    /// True when it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when the object's fields match. An absent field counts as empty.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| term.matches(object))
    }

    /// The single name that it requires.
    pub(crate) fn name(&self) -> Option<&str> {
        let named = |t: &&FieldTerm| t.equal && t.path.len() == 2 && t.path[1] == "name";
        let named = self
            .0
            .iter()
            .filter(|t| t.path[0] == "metadata")
            .find(named);
        named.map(|t| t.value.as_str())
    }
}

impl FieldTerm {
    fn matches(&self, object: &Value) -> bool {
        let found = self
            .path
            .iter()
            .try_fold(object, |value, key| value.get(key));
        let equal = match found {
            None | Some(Value::Null) => {
                // Absent booleans and numbers match their zero values.
                self.value.is_empty()
                    || (self.is(&["spec", "unschedulable"]) && self.value == "false")
                    || (self.is(&["spec", "hostNetwork"]) && self.value == "false")
                    || (self.is(&["status", "replicas"]) && self.value == "0")
                    || (self.is(&["status", "successful"]) && self.value == "0")
            }
            Some(Value::String(text)) => *text == self.value,
            // An event's `source` is selected by its component.
            Some(Value::Object(map)) => {
                map.get("component").and_then(Value::as_str) == Some(self.value.as_str())
            }
            Some(other) => format!("{other}") == self.value,
        };
        equal == self.equal
    }

    fn is(&self, path: &[&str]) -> bool {
        self.path == path
    }
}

/// Both selectors of a list or watch. [`Cluster::list`](crate::Cluster::list) takes them as a part
/// of its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selectors {
    /// By labels.
    pub labels: LabelSelector,
    /// By fields.
    pub fields: FieldSelector,
}

impl Selectors {
    /// Parses both.
    ///
    /// # Errors
    /// As those of the two.
    pub fn parse(
        labels: &str,
        fields: &str,
        info: &ResourceInfo,
        version: &str,
    ) -> Result<Self, SelectorError> {
        let labels = LabelSelector::parse(labels)?;
        Ok(Selectors {
            labels,
            fields: FieldSelector::parse(fields, info, version)?,
        })
    }

    /// True when they select everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// True when the object matches both.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("", true)]
    #[case("app=web", true)]
    #[case("app == web", true)]
    #[case("app=db", false)]
    #[case("app!=db", true)]
    #[case("missing!=x", true)]
    #[case("app in (db, web)", true)]
    #[case("app notin (db, web)", false)]
    #[case("missing notin (a)", true)]
    #[case("app", true)]
    #[case("!app", false)]
    #[case("!missing", true)]
    #[case("tier>2", true)]
    #[case("tier<2", false)]
    #[case("app=web,tier=3", true)]
    #[case("app=web,tier in (1,2)", false)]
    #[case("a.dev/b=c", true)]
    fn label_selectors_match_as_on_the_wire(#[case] text: &str, #[case] wanted: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "3", "a.dev/b": "c"}}});
        assert_eq!(
            LabelSelector::parse(text).unwrap().matches(&object),
            wanted,
            "{text}"
        );
    }

    #[rstest]
    #[case("a=b=c")]
    #[case("a in b")]
    #[case("a in (b")]
    #[case("a>x")]
    #[case(",")]
    #[case("a b")]
    fn invalid_selectors_are_refused(#[case] text: &str) {
        assert!(LabelSelector::parse(text).is_err(), "{text}");
    }
}
