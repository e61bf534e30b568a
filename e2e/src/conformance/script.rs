//! The script of a case: requests, each followed by the expected response.
//!
//! ```text
//! == a-create-answers-the-object-as-stored
//! POST configmaps [data] {"metadata": {"name": "a"}, "data": {"k": "v"}}
//! > 201 ConfigMap data={"k":"v"}
//! ```
//!
//! A line that starts with white space continues the previous line. `#` begins a comment.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

/// One case: a name and steps, run in its own namespace.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) theme: &'static str,
    pub(super) name: String,
    /// Why it is skipped on the sandbox: what the sandbox deliberately does not cover.
    pub(super) not_covered: Option<String>,
    /// No other case may run at the same time.
    pub(super) alone: bool,
    pub(super) steps: Vec<Step>,
}

impl Case {
    /// `theme/name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.theme, self.name)
    }
}

/// One step and its expected result.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Its line, for messages; counted from 1.
    pub(super) line: usize,
    pub(super) action: Action,
    /// The lines of the response, without their mark.
    pub(super) expected: Vec<String>,
    /// The position of these lines in the file, for recording: line indexes from 0.
    pub(super) place: Range<usize>,
}

/// The action of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Sends a request and shows the response.
    Send(Request),
    /// Repeats a GET, or a dry run of another method, until it returns the expected response.
    Until(Request),
    /// Opens a watch.
    Watch(Request),
    /// Shows the next events of the watch.
    Events { count: usize, fields: Vec<String> },
    /// Shows all events until the server ends the watch.
    Closed { fields: Vec<String> },
    /// Names a value of the last response: from then on `$name` is replaced by it.
    Let { name: String, path: String },
    /// Compacts everything before now.
    Compact,
}

/// A request of the script, before `$name` is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// `NAME:VALUE`.
    pub(super) headers: Vec<String>,
    /// Fields of the response that are shown; `-message` hides an error's message.
    pub(super) fields: Vec<String>,
    pub(super) body: String,
}

/// The cases of one file. The error names the invalid line.
pub(super) fn parse(theme: &'static str, text: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in logical_lines(text) {
        let reported = || format!("{theme}, line {}: {line}", number.start + 1);
        if let Some(name) = line.strip_prefix("== ") {
            cases.push(Case {
                theme,
                name: name.trim().to_owned(),
                not_covered: None,
                alone: false,
                steps: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().with_context(reported)?;
        if let Some(why) = line.strip_prefix("-- not covered by the sandbox: ") {
            case.not_covered = Some(why.to_owned());
        } else if line == "-- alone" {
            case.alone = true;
        } else if let Some(answer) = line.strip_prefix("> ") {
            let step = case.steps.last_mut().with_context(reported)?;
            step.expected.push(answer.to_owned());
            step.place.end = number.end;
        } else {
            case.steps.push(Step {
                line: number.start + 1,
                action: action(&line).with_context(reported)?,
                expected: Vec::new(),
                place: number.end..number.end,
            });
        }
    }
    Ok(cases)
}

/// Lines without comments and empty ones, continuations joined, with their position.
fn logical_lines(text: &str) -> Vec<(Range<usize>, String)> {
    let mut lines: Vec<(Range<usize>, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some((place, before)) if line.starts_with(' ') => {
                before.push(' ');
                before.push_str(line.trim());
                place.end = index + 1;
            }
            _ => lines.push((index..index + 1, line.trim_end().to_owned())),
        }
    }
    lines
}

fn action(line: &str) -> Result<Action> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(match word {
        "UNTIL" => {
            // A request of another method must not change anything: a dry run.
            let (method, path) = rest.split_once(' ').unwrap_or((rest, ""));
            match method.chars().all(|c| c.is_ascii_uppercase()) {
                true => Action::Until(request(method, path)?),
                false => Action::Until(request("GET", rest)?),
            }
        }
        "WATCH" => Action::Watch(request("GET", rest)?),
        "EVENTS" => {
            let (count, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            Action::Events {
                count: count.parse().context("invalid number of events")?,
                fields: bracketed(rest)?.0,
            }
        }
        "CLOSED" => Action::Closed {
            fields: bracketed(rest)?.0,
        },
        "COMPACT" => Action::Compact,
        "let" => {
            let (name, path) = rest
                .split_once(" = ")
                .context("expected let NAME = FIELD")?;
            Action::Let {
                name: name.to_owned(),
                path: path.to_owned(),
            }
        }
        word if word.chars().all(|c| c.is_ascii_uppercase()) => Action::Send(request(word, rest)?),
        _ => bail!("unknown step"),
    })
}

fn request(method: &str, rest: &str) -> Result<Request> {
    let (path, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
    ensure!(!path.is_empty(), "the request has no path");
    let mut headers = Vec::new();
    while let Some(header) = rest.strip_prefix('@') {
        let (header, after) = header.split_once(' ').unwrap_or((header, ""));
        headers.push(header.to_owned());
        rest = after;
    }
    // A body may begin with a bracket too; fields are names.
    let fields_come = rest.starts_with('[') && !rest.starts_with("[{") && !rest.starts_with("[ {");
    let (fields, body) = if fields_come {
        bracketed(rest)?
    } else {
        (Vec::new(), rest)
    };
    Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        fields,
        body: body.to_owned(),
    })
}

fn bracketed(text: &str) -> Result<(Vec<String>, &str)> {
    let Some(inner) = text.strip_prefix('[') else {
        return Ok((Vec::new(), text));
    };
    let (inner, rest) = inner.split_once(']').context("missing ]")?;
    let fields = inner.split_whitespace().map(str::to_owned).collect();
    Ok((fields, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
== one
POST pods @Accept:text/html [metadata.name -message] {\"a\":
  1}
> 201 Pod
>   more
let uid = metadata.uid

== two
-- not covered by the sandbox: nothing is
-- alone
JSONPATCH pods/a [{\"op\": \"test\"}]
EVENTS 2 [status]
";

    #[test]
    fn a_script_is_read() {
        let cases = parse("t", TEXT).unwrap();
        assert_eq!(cases.len(), 2);
        let Action::Send(post) = &cases[0].steps[0].action else {
            panic!("{:?}", cases[0])
        };
        assert_eq!(post.fields, ["metadata.name", "-message"]);
        assert_eq!(post.body, "{\"a\": 1}");
        assert_eq!(post.headers, ["Accept:text/html"]);
        assert_eq!(cases[0].steps[0].expected, ["201 Pod", "  more"]);
        assert_eq!(cases[0].steps[0].place, 4..6);
        assert!(cases[1].alone && cases[1].not_covered.is_some());
        let Action::Send(patch) = &cases[1].steps[0].action else {
            panic!("{:?}", cases[1])
        };
        assert_eq!(patch.body, "[{\"op\": \"test\"}]");
    }

    #[test]
    fn an_invalid_line_is_named_in_the_error() {
        let error = parse("t", "== one\nwhat now").unwrap_err();
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
    }
}
