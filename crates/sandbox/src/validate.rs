//! Validation of names, labels and finalizers.

use serde_json::Value;

use crate::address::Gvr;
use crate::error::Cause;
use crate::kinds::{ResourceInfo, Traits};
use crate::meta;
use crate::names::{label_name, subdomain};

const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// Limit of the annotations of one object, keys and values together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn simple_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(inner)
}

/// Why `text` is not a qualified name (an optional DNS prefix, a slash, a name).
pub(crate) fn qualified_name(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if name.contains('/') {
        return Some(LABEL_KEY.to_owned());
    }
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".into());
        }
        if let Some(why) = subdomain(prefix) {
            return Some(format!("prefix part {why}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!simple_name(name)).then(|| QUALIFIED.to_owned())
}

/// Why `text` is not a label value.
pub(crate) fn label_value(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!text.is_empty() && !simple_name(text)).then_some(LABEL_VALUE)
}

fn path_segment(text: &str) -> Option<&'static str> {
    match text {
        "." => Some("may not be '.'"),
        ".." => Some("may not be '..'"),
        text if text.contains('/') => Some("may not contain '/'"),
        text if text.contains('%') => Some("may not contain '%'"),
        _ => None,
    }
}

fn name_rule(info: &ResourceInfo, name: &str) -> Option<&'static str> {
    if info.has(Traits::PATH_NAMES) {
        return path_segment(name);
    }
    if info.is(&Gvr::NAMESPACES) {
        label_name(name)
    } else {
        subdomain(name)
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// All errors in an object's metadata.
pub(crate) fn metadata(info: &ResourceInfo, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = meta::name(object);
    if let Some(why) = name_rule(info, name) {
        causes.push(Cause::invalid("metadata.name", &quoted(name), why));
    }
    causes.extend(texts_of(object));
    causes.extend(meta::check_owners(object));
    causes.extend(finalizers(info, object));
    causes
}

/// All errors in an object's labels and annotations.
pub(crate) fn texts_of(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    texts(object, "labels", |key, value| {
        if let Some(why) = qualified_name(key) {
            causes.push(Cause::invalid("metadata.labels", &quoted(key), &why));
        }
        if let Some(why) = label_value(value) {
            causes.push(Cause::invalid("metadata.labels", &quoted(value), why));
        }
    });
    let mut size = 0;
    texts(object, "annotations", |key, value| {
        size += key.len() + value.len();
        // Annotation keys may contain capitals.
        if let Some(why) = qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &quoted(key), &why));
        }
    });
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause {
            reason: "FieldValueTooLong".into(),
            message: format!("Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"),
            field: "metadata.annotations".into(),
        });
    }
    causes
}

/// The error in a prefix for generated names.
pub(crate) fn generate_name(info: &ResourceInfo, object: &Value) -> Option<Cause> {
    let prefix = meta::field(object, "generateName");
    // A trailing dash is allowed, as a suffix follows it.
    let masked = prefix
        .strip_suffix('-')
        .map_or(prefix.to_owned(), |head| format!("{head}a"));
    if prefix.is_empty() {
        return None;
    }
    let why = name_rule(info, &masked)?;
    Some(Cause::invalid(
        "metadata.generateName",
        &quoted(prefix),
        why,
    ))
}

fn texts(object: &Value, field: &str, mut each: impl FnMut(&str, &str)) {
    let Some(map) = meta::at(object, &["metadata", field]).and_then(Value::as_object) else {
        return;
    };
    for (key, value) in map {
        each(key, value.as_str().unwrap_or_default());
    }
}

const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

fn finalizers(info: &ResourceInfo, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut policies = 0;
    for (index, finalizer) in meta::finalizers(object).iter().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        policies += usize::from(matches!(text, "orphan" | "foregroundDeletion"));
        let path = "metadata.finalizers";
        if let Some(why) = qualified_name(text) {
            causes.push(Cause::invalid(path, &quoted(text), &why));
            continue;
        }
        // Only the core group requires a prefix.
        let core = !info.custom && info.group.is_empty();
        if core && !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            let path = format!("{path}[{index}]");
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&path, &quoted(text), why));
        }
    }
    if policies > 1 {
        causes.push(Cause::invalid(
            "metadata.finalizers",
            &serde_json::to_string(meta::finalizers(object)).unwrap_or_default(),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
    causes
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a", true)]
    #[case("a-b.c", true)]
    #[case("", false)]
    #[case("A", false)]
    #[case("-a", false)]
    #[case("a..b", false)]
    fn object_names_are_dns_subdomains(#[case] name: &str, #[case] good: bool) {
        assert_eq!(subdomain(name).is_none(), good, "{name}");
    }

    #[rstest]
    #[case("belayer.dev/pod-status", true)]
    #[case("plain", true)]
    #[case("/name", false)]
    #[case("a/b/c", false)]
    #[case("UPPER.dev/name", false)]
    #[case("a/", false)]
    fn finalizers_are_qualified_names(#[case] name: &str, #[case] good: bool) {
        assert_eq!(qualified_name(name).is_none(), good, "{name}");
    }
}
