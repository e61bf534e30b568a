//! The text form of responses: what a client sees, without what differs from run to run.

use std::collections::BTreeMap;

use serde_json::Value;

/// Values that a case has named, and values that differ in each run.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    by_name: BTreeMap<String, String>,
    abbreviations: Vec<(&'static str, &'static str)>,
}

impl Names {
    /// Names a value.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.by_name.insert(name.to_owned(), value.to_owned());
    }

    /// Names a text that is not replaced in responses.
    pub(super) fn abbreviate(&mut self, name: &'static str, text: &'static str) {
        self.abbreviations.push((name, text));
    }

    /// Replaces `$name` by values, and `{{TEXT*N}}` by N repetitions of the text.
    pub(super) fn fill_in(&self, text: &str) -> String {
        let mut names: Vec<_> = self.by_name.iter().collect();
        // `$ns2` is not `$ns` with a 2.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut filled = text.to_owned();
        for (name, value) in &self.abbreviations {
            filled = filled.replace(&format!("${name}"), value);
        }
        for (name, value) in names {
            filled = filled.replace(&format!("${name}"), value);
        }
        repeat(&filled)
    }

    /// The reverse, and placeholders for UIDs, times and versions.
    pub(super) fn mask(&self, text: &str) -> String {
        // A version can be the number of the status code.
        let is_code = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit());
        if let Some((code, rest)) = text.split_once(' ')
            && is_code(code)
        {
            return format!("{code} {}", self.mask(rest));
        }
        let mut values: Vec<_> = self.by_name.iter().collect();
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        let mut masked = text.to_owned();
        for (name, value) in values {
            masked = replace_word(&masked, value, &format!("${name}"));
        }
        mask_patterns(&masked)
    }
}

fn repeat(text: &str) -> String {
    let Some((before, rest)) = text.split_once("{{") else {
        return text.to_owned();
    };
    let Some((inside, after)) = rest.split_once("}}") else {
        return text.to_owned();
    };
    match inside
        .rsplit_once('*')
        .and_then(|(word, n)| Some((word, n.parse().ok()?)))
    {
        Some((word, times)) => format!("{before}{}{}", word.repeat(times), repeat(after)),
        None => format!("{before}{{{{{}", repeat(rest)),
    }
}

/// Replaces a value as a whole word only.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    if word.is_empty() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let joined = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        out.push_str(before);
        let number = word.bytes().all(|b| b.is_ascii_digit());
        let inside = joined(out.chars().next_back()) || joined(after.chars().next());
        out.push_str(if number && inside { word } else { by });
        rest = after;
    }
    out.push_str(rest);
    out
}

fn mask_patterns(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = [("<uid>", uuid_len(rest)), ("<time>", time_len(rest))];
        match found.iter().find(|(_, length)| *length > 0) {
            Some((holder, length)) => {
                out.push_str(holder);
                rest = &rest[*length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out = shorten(&out);
    for before in [
        "current: ",
        "too old resource version: ",
        "resourceVersion\\\":\\\"",
    ] {
        out = mask_number(&out, before);
    }
    out
}

/// Forty or more repetitions of one letter are written as in requests.
fn shorten(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let after = rest.trim_start_matches(letter);
        let times = (rest.len() - after.len()) / letter.len_utf8();
        match times {
            40.. => out.push_str(&format!("{{{{{letter}*{times}}}}}")),
            _ => out.extend(std::iter::repeat_n(letter, times)),
        }
        rest = after;
    }
    out
}

fn shape_len(text: &str, shape: &str) -> usize {
    let fits = |b: u8, s: u8| match s {
        b'x' => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        b'9' => b.is_ascii_digit(),
        s => b == s,
    };
    let bytes = text.as_bytes();
    let whole =
        bytes.len() >= shape.len() && bytes.iter().zip(shape.bytes()).all(|(b, s)| fits(*b, s));
    if whole { shape.len() } else { 0 }
}

fn uuid_len(text: &str) -> usize {
    shape_len(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
}

fn time_len(text: &str) -> usize {
    let whole = shape_len(text, "9999-99-99T99:99:99Z");
    if whole > 0 {
        return whole;
    }
    shape_len(text, "9999-99-99T99:99:99.999999Z")
}

fn mask_number(text: &str, before: &str) -> String {
    let Some(at) = text.find(before) else {
        return text.to_owned();
    };
    let (head, tail) = text.split_at(at + before.len());
    let rest = tail.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == tail.len() {
        return text.to_owned();
    }
    let rest = match rest.strip_prefix(" (") {
        Some(more) => format!(
            " (<version>{}",
            more.trim_start_matches(|c: char| c.is_ascii_digit())
        ),
        None => rest.to_owned(),
    };
    format!("{head}<version>{rest}")
}

/// The lines for a response.
pub(super) fn answer(
    code: u16,
    media: &str,
    warnings: &[String],
    body: &[u8],
    fields: &[String],
) -> Vec<String> {
    let mut lines = Vec::new();
    match serde_json::from_slice::<Value>(body) {
        Ok(value) if value.is_object() => {
            let (head, message) = object(&value, fields);
            lines.push(format!("{code} {head}"));
            lines.extend(message);
        }
        _ => {
            let text = String::from_utf8_lossy(body);
            let start: String = text.chars().take(300).collect();
            lines.push(format!("{code} {media} {:?}", start.trim()));
        }
    }
    lines.extend(warnings.iter().map(|w| format!("Warning: {w}")));
    lines
}

/// An object in one line, and an error's message as the second.
pub(super) fn object(value: &Value, fields: &[String]) -> (String, Option<String>) {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut parts = Vec::new();
    let mut message = None;
    if text("kind") == "Status" && text("apiVersion") == "v1" && text("status") == "Failure" {
        let reason = text("reason");
        parts.push(
            if reason.is_empty() {
                "(no reason)"
            } else {
                reason
            }
            .to_owned(),
        );
        if !fields.iter().any(|f| f == "-message") {
            message = Some(text("message").replace('\n', "\\n"));
        }
        let hidden = fields.iter().any(|f| f == "-details");
        if let Some(details) = value.get("details").filter(|_| !hidden) {
            parts.push(tell_details(details, message.as_deref()));
        }
        let token = value.pointer("/metadata/continue").is_some();
        parts.extend(token.then(|| "with a continue token".to_owned()));
        return (parts.join(" "), message);
    }
    parts.push(text("kind").to_owned());
    if text("kind") == "Status" {
        parts.push(text("status").to_owned());
        parts.extend(value.get("details").map(Value::to_string));
    }
    for field in fields.iter().filter(|f| !f.starts_with('-')) {
        let found = at(value, field);
        let shown = found.map_or_else(|| "-".to_owned(), |found| found.to_string());
        parts.push(format!("{field}={shown}"));
    }
    (parts.join(" "), None)
}

/// The object of an error, and each cause; without what the message repeats.
fn tell_details(details: &Value, message: Option<&str>) -> String {
    let text = |value: &Value, field: &str| {
        let text = value.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let mut about = details.clone();
    let causes = about.as_object_mut().and_then(|map| map.remove("causes"));
    let mut reported = about.to_string();
    for cause in causes
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let reason = text(cause, "reason");
        if !reason.is_empty() {
            reported.push_str(&format!(" {reason}"));
        }
        let (field, words) = (text(cause, "field"), text(cause, "message"));
        if !field.is_empty() {
            reported.push_str(&format!(" {field:?}"));
        }
        if message.is_some_and(|message| !message.contains(&words)) {
            reported.push_str(&format!(" {words:?}"));
        }
    }
    reported
}

/// The value at a dotted path; `*` collects over a list, `#` counts, a number is an index, and `\.` is a
/// dot in a key.
pub(super) fn at(value: &Value, path: &str) -> Option<Value> {
    let keys = path.replace("\\.", "\u{1}");
    let keys: Vec<String> = keys.split('.').map(|k| k.replace('\u{1}', ".")).collect();
    walk(value, &keys)
}

fn walk(value: &Value, keys: &[String]) -> Option<Value> {
    let Some((key, rest)) = keys.split_first() else {
        return Some(value.clone());
    };
    match (key.as_str(), value) {
        ("*", Value::Array(items)) => {
            let found = items
                .iter()
                .map(|item| walk(item, rest).unwrap_or(Value::Null));
            Some(found.collect())
        }
        ("#", Value::Array(items)) => Some(items.len().into()),
        ("?", Value::Object(map)) => Some(map.keys().cloned().collect()),
        ("?", Value::String(text)) => Some((!text.is_empty()).into()),
        (key, Value::Array(items)) => walk(items.get(key.parse::<usize>().ok()?)?, rest),
        (key, value) => walk(value.get(key)?, rest),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_differ_in_each_run_are_masked() {
        let mut names = Names::default();
        names.set("ns", "c1-2");
        names.set("rv", "12");
        let text = "c1-2-a at 2026-01-01T00:00:00Z, 12 of 123, 01234567-89ab-cdef-0123-456789abcdef, current: 77";
        assert_eq!(
            names.mask(text),
            "$ns-a at <time>, $rv of 123, <uid>, current: <version>"
        );
        names.set("new", "409");
        assert_eq!(names.mask("409 Conflict at 409"), "409 Conflict at $new");
    }

    #[test]
    fn names_and_repetitions_are_filled_in() {
        let mut names = Names::default();
        names.set("ns", "x");
        assert_eq!(
            names.fill_in("$ns {{ab*3}} {\"a\":{}}"),
            "x ababab {\"a\":{}}"
        );
    }

    #[rstest]
    #[case("a.b", Some(json!(1)))]
    #[case("l.*.n", Some(json!(["x", null])))]
    #[case("l.#", Some(json!(2)))]
    #[case("l.0.n", Some(json!("x")))]
    #[case("k\\.d", Some(json!(2)))]
    #[case("none", None)]
    fn fields_are_found(#[case] path: &str, #[case] wanted: Option<Value>) {
        let value = json!({"a": {"b": 1}, "l": [{"n": "x"}, {}], "k.d": 2});
        assert_eq!(at(&value, path), wanted);
    }
}
