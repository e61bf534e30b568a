//! Just enough of PromQL to know which series and labels a query names.

/// What a query names.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) selectors: Vec<Selector>,
    /// Labels after `by`, `without`, `on` and `ignoring`.
    pub(crate) grouping: Vec<String>,
}

/// `name{label="value"}[5m]`.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) name: String,
    /// Label and what it is compared with.
    pub(crate) matchers: Vec<(String, String)>,
    /// Whether a range is selected.
    pub(crate) over_time: bool,
}

const FUNCTIONS: &[&str] = &[
    "sum",
    "max",
    "min",
    "avg",
    "count",
    "rate",
    "increase",
    "absent",
    "histogram_quantile",
    "time",
    "clamp_min",
    "topk",
];
const OPERATORS: &[&str] = &["and", "or", "unless", "bool"];
const GROUPINGS: &[&str] = &["by", "without", "on", "ignoring"];

/// Reads a query.
pub(crate) fn read(text: &str) -> Result<Query, String> {
    let mut query = Query::default();
    let mut rest = text;
    let mut depth = 0_i32;
    while let Some(c) = rest.chars().next() {
        if c.is_ascii_alphabetic() || c == '_' {
            let (word, after) = split(rest, |c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
            rest = after;
            if GROUPINGS.contains(&word) {
                let (list, after) = group(rest)?;
                query.grouping.extend(list);
                rest = after;
            } else if FUNCTIONS.contains(&word) {
                let next = rest.trim_start();
                if !(next.starts_with('(') || next.starts_with("by") || next.starts_with("without"))
                {
                    return Err(format!("{word} stands alone"));
                }
            } else if !OPERATORS.contains(&word) {
                let (selector, after) = selector(word, rest)?;
                query.selectors.push(selector);
                rest = after;
            }
            continue;
        }
        if c.is_ascii_digit() {
            rest = split(rest, |c| c.is_ascii_alphanumeric() || c == '.').1;
            continue;
        }
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' | '+' | '-' | '*' | '/' | '<' | '>' | '=' | '!' => {}
            c if c.is_whitespace() => {}
            c => return Err(format!("{c:?} is not expected in {text:?}")),
        }
        if depth < 0 {
            return Err(format!("a bracket too many in {text:?}"));
        }
        rest = &rest[1..];
    }
    if depth == 0 {
        Ok(query)
    } else {
        Err(format!("a bracket is not closed in {text:?}"))
    }
}

fn split(text: &str, part: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !part(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// `(a, b)`.
fn group(text: &str) -> Result<(Vec<String>, &str), String> {
    let inner = text
        .trim_start()
        .strip_prefix('(')
        .ok_or("a grouping without labels")?;
    let (list, after) = inner
        .split_once(')')
        .ok_or("a grouping that does not end")?;
    Ok((
        list.split(',')
            .map(|label| label.trim().to_owned())
            .collect(),
        after,
    ))
}

fn selector<'a>(name: &str, text: &'a str) -> Result<(Selector, &'a str), String> {
    let mut selector = Selector {
        name: name.to_owned(),
        matchers: Vec::new(),
        over_time: false,
    };
    let mut rest = text;
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = split(rest, |c| c.is_ascii_alphanumeric() || c == '_');
            let after = after.trim_start_matches(['=', '~', '!']);
            let value = after
                .strip_prefix('"')
                .ok_or_else(|| format!("{label} is compared with nothing"))?;
            let (value, after) = value.split_once('"').ok_or("a text that does not end")?;
            selector.matchers.push((label.to_owned(), value.to_owned()));
            rest = after.trim_start_matches([',', ' ']);
        }
        rest = &rest[1..];
    }
    if let Some(range) = rest.strip_prefix('[') {
        let (range, after) = range.split_once(']').ok_or("a range that does not end")?;
        if range.is_empty() {
            return Err(format!("{name}: an empty range"));
        }
        selector.over_time = true;
        rest = after;
    }
    Ok((selector, rest))
}
