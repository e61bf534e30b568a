//! The normal form of output: without ages, UIDs and counts, wrapped lines joined.

/// The normal form of an output.
pub(super) fn normal(output: &str, namespace: &str) -> String {
    let joined = join(output);
    let mut lines = Vec::new();
    for line in joined.lines() {
        let line = line.replace(namespace, "$ns");
        let indent = line.len() - line.trim_start().len();
        let words: Vec<String> = line.split_whitespace().map(word).collect();
        let text = words.join(" ");
        let text = if text.starts_with("Read ") {
            counts(&text)
        } else {
            versions(&workloads(&text))
        };
        lines.push(
            format!("{}{text}", " ".repeat(indent))
                .trim_end()
                .to_owned(),
        );
    }
    lines.join("\n").trim().to_owned()
}

/// Joins a line with its continuation: where it breaks depends on lengths.
fn join(output: &str) -> String {
    let mut out = String::new();
    for line in output.lines() {
        let indent = line.len() - line.trim_start().len();
        let goes_on =
            indent == 16 || indent == 8 || (indent == 2 && !line.trim_start().starts_with('-'));
        if goes_on && !out.is_empty() {
            out.push(' ');
            out.push_str(line.trim());
        } else {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(line);
        }
    }
    out
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if is_age(bare) {
        return word.replace(bare, "<age>");
    }
    if is_uid(bare) {
        return word.replace(bare, "<uid>");
    }
    // The value of a pair: involvedObject.uid=...
    match word.split_once('=') {
        Some((name, value)) if is_uid(value) => format!("{name}=<uid>"),
        _ => word.to_owned(),
    }
}

/// `12s`, `2m5s`, `3d`.
fn is_age(text: &str) -> bool {
    let mut number = false;
    let mut unit = false;
    for c in text.chars() {
        match c {
            '0'..='9' => (number, unit) = (true, false),
            's' | 'm' | 'h' | 'd' if number => (number, unit) = (false, true),
            _ => return false,
        }
    }
    unit
}

fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn counts(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if number { "<n>" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The number of workloads depends on the cluster.
fn workloads(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 1..words.len() {
        let number = words[at - 1].bytes().all(|byte| byte.is_ascii_digit());
        if words[at] == "Deployments," && number {
            words[at - 1] = "<n>";
        }
        let count = words[at - 1].strip_prefix('(');
        let number = count.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        if words[at] == "checked)" && number {
            words[at - 1] = "(<n>";
        }
    }
    words.join(" ")
}

/// The server depends on the provider.
fn versions(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 1..words.len() {
        if words[at - 1] == "Kubernetes" && words[at].starts_with("v1.") {
            words[at] = if words[at].ends_with(';') {
                "<version>;"
            } else {
                "<version>"
            };
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_between_runs_is_left_out() {
        let output = "1 object is stuck.\n    e2e-x/pods/a     12s  set by 3 of kubectl\n    Proof     none of \
                      the 3 Deployments, and\n                so on (it lasts 15s)\n\nRead 12 objects of 3 kinds\n";
        let expected = "1 object is stuck.\n    $ns/pods/a <age> set by 3 of kubectl\n    Proof none of the <n> \
                        Deployments, and so on (it lasts <age>)\n\nRead <n> objects of <n> kinds";
        assert_eq!(normal(output, "e2e-x"), expected);
    }
}
