//! The JSON paths of printer columns, as kubectl evaluates them.

use std::cmp::Ordering;

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// `*`.
    All,
    /// `..`: the value and everything in it.
    Deep,
    Index(i64),
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        step: Option<i64>,
    },
    /// `[a,b]`.
    Union(Vec<Path>),
    /// `[?(@.a=="b")]`; without a comparison, what has the left side.
    Filter(Path, Option<(Comparison, Operand)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Literal(Value),
    Path(Path),
}

impl Path {
    /// `None` if the text is no path.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.trim_start_matches(['$', '@']);
        while let Some(first) = rest.chars().next() {
            rest = if let Some(inner) = rest.strip_prefix("[?(") {
                let (filter, after) = closing(inner, ")]")?;
                steps.push(filter_step(filter)?);
                after
            } else if let Some(inner) = rest.strip_prefix('[') {
                let (inner, after) = inner.split_once(']')?;
                brackets(inner, &mut steps)?;
                after
            } else if let Some(after) = rest.strip_prefix("..") {
                steps.push(Step::Deep);
                match after.chars().next() {
                    Some('[' | '.') => after,
                    _ => field(after, &mut steps)?,
                }
            } else if first == '.' {
                field(&rest[1..], &mut steps)?
            } else if first == ' ' {
                &rest[1..]
            } else {
                return None;
            };
        }
        Some(Path(steps))
    }

    /// Everything that the path leads to. `None` where it asks for a list's item that is not there, or compares values of
    /// different types.
    pub(super) fn find<'a>(&self, value: &'a Value) -> Option<Vec<&'a Value>> {
        let start = vec![value];
        self.0.iter().try_fold(start, |found, step| step.of(found))
    }
}

/// Reads a field's name, in which `\` escapes; returns the rest of the text.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' | ' ' => {
                end = at;
                break;
            }
            other => name.push(other),
        }
    }
    // A path that is only a dot leads to the whole object.
    if !name.is_empty() {
        steps.push(match name.as_str() {
            "*" => Step::All,
            _ => Step::Field(name),
        });
    }
    Some(&text[end..])
}

/// Reads what is between brackets.
fn brackets(text: &str, steps: &mut Vec<Step>) -> Option<()> {
    if text == "*" {
        steps.push(Step::All);
        return Some(());
    }
    if text.contains(',') {
        let part = |part: &str| Path::parse(&format!("[{}]", part.trim()));
        let parts: Option<Vec<Path>> = text.split(',').map(part).collect();
        steps.push(Step::Union(parts?));
        return Some(());
    }
    let quoted = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
    if let Some(name) = quoted {
        // The dots of such a name need an escape, too.
        steps.extend(Path::parse(&format!(".{name}"))?.0);
        return Some(());
    }
    let mut numbers = text.splitn(3, ':').map(|number| match number {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    });
    let from: Option<i64> = numbers.next()??;
    let Some(to) = numbers.next() else {
        steps.push(Step::Index(from?));
        return Some(());
    };
    let step = match numbers.next() {
        Some(step) => step?,
        None => None,
    };
    steps.push(Step::Slice {
        from,
        to: to?,
        step,
    });
    Some(())
}

/// Splits a text at the first end that is not in quotes.
fn closing<'a>(text: &'a str, end: &str) -> Option<(&'a str, &'a str)> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None if text[at..].starts_with(end) => {
                return Some((&text[..at], &text[at + end.len()..]));
            }
            None => {}
        }
    }
    None
}

fn filter_step(text: &str) -> Option<Step> {
    let is_operator = |letter: char| matches!(letter, '!' | '<' | '>' | '=');
    let Some(at) = text.find(is_operator) else {
        return Some(Step::Filter(Path::parse(text.trim())?, None));
    };
    let (left, rest) = text.split_at(at);
    let right = rest.trim_start_matches(is_operator);
    let comparison = match &rest[..rest.len() - right.len()] {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    };
    let compared = Some((comparison, operand(right.trim())?));
    Some(Step::Filter(Path::parse(left.trim())?, compared))
}

fn operand(text: &str) -> Option<Operand> {
    for quote in ['"', '\''] {
        let inner = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
        if let Some(inner) = inner {
            return Some(Operand::Literal(Value::from(inner.replace('\\', ""))));
        }
    }
    match serde_json::from_str(text) {
        Ok(literal @ (Value::Bool(_) | Value::Number(_))) => Some(Operand::Literal(literal)),
        _ => Path::parse(text).map(Operand::Path),
    }
}

fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn deep<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    let inner = items(value);
    if !inner.is_empty() {
        found.push(value);
        inner.into_iter().for_each(|value| deep(value, found));
    }
}

impl Step {
    fn of<'a>(&self, found: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
        let mut next = Vec::new();
        for value in &found {
            if value.is_null() {
                continue;
            }
            match self {
                Step::Field(name) => next.extend(value.as_object().and_then(|map| map.get(name))),
                Step::All => next.extend(items(value)),
                Step::Deep => deep(value, &mut next),
                Step::Index(index) => next.push(at(value.as_array()?, *index)?),
                Step::Slice { from, to, step } => {
                    next.extend(slice(value.as_array()?, *from, *to, *step)?);
                }
                // All of one part before all of the next.
                Step::Union(_) => {}
                Step::Filter(left, compared) => {
                    for item in value.as_array()? {
                        if passes(item, left, compared.as_ref())? {
                            next.push(item);
                        }
                    }
                }
            }
        }
        if let Step::Union(parts) = self {
            for part in parts {
                next.extend(
                    part.0
                        .iter()
                        .try_fold(found.clone(), |f, step| step.of(f))?,
                );
            }
        }
        Some(next)
    }
}

/// The position of an index, which counts from the end if it is negative.
fn position(length: usize, index: i64) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok()
}

fn at(items: &[Value], index: i64) -> Option<&Value> {
    items.get(position(items.len(), index)?)
}

fn slice(
    items: &[Value],
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
) -> Option<impl Iterator<Item = &Value>> {
    let from = position(items.len(), from.unwrap_or(0))?;
    let to = match to {
        Some(to) => position(items.len(), to)?,
        None => items.len(),
    };
    let step = usize::try_from(step.unwrap_or(1)).ok()?;
    // An empty part of a list may be anywhere.
    let part = match from == to {
        true => &[],
        false => items.get(from..to)?,
    };
    (step > 0).then(|| part.iter().step_by(step))
}

/// Whether a filter keeps an item; `None` if the values cannot be compared.
fn passes(item: &Value, left: &Path, compared: Option<&(Comparison, Operand)>) -> Option<bool> {
    let found = left.find(item);
    let Some((comparison, operand)) = compared else {
        return Some(found.is_some_and(|found| !found.is_empty()));
    };
    let left = match found?.as_slice() {
        [] => return Some(false),
        [one] => *one,
        _ => return None,
    };
    let right = match operand {
        Operand::Literal(value) => value,
        Operand::Path(path) => match path.find(item)?.as_slice() {
            [] => return Some(false),
            [one] => *one,
            _ => return None,
        },
    };
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64()?.partial_cmp(&right.as_f64()?)?
        }
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => return None,
    };
    Some(match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(".a.b", json!([1]))]
    #[case("$.a.b", json!([1]))]
    #[case(".list[0]", json!([{"n": 1, "t": "x"}]))]
    #[case(".list[-2].n", json!([2]))]
    #[case(".list[1:].n", json!([2, 3]))]
    #[case(".list[:-1].n", json!([1, 2]))]
    #[case(".list[::2].n", json!([1, 3]))]
    #[case(".list[2:2].n", json!([]))]
    #[case(".list[0,2].n", json!([1, 3]))]
    #[case(".list[*].t", json!(["x", "y"]))]
    #[case(".a.*", json!([1]))]
    #[case("..n", json!([1, 2, 3]))]
    #[case(".list[?(@.t)].n", json!([1, 2]))]
    #[case(".list[?(@.t=='y')].n", json!([2]))]
    #[case(".list[?(@.t == \"y)]\")].n", json!([]))]
    #[case(".list[?(@.t!=\"y\")].n", json!([1]))]
    #[case(".list[?(@.n>=2)].n", json!([2, 3]))]
    #[case(".list[?(@.n==@.n)].n", json!([1, 2, 3]))]
    #[case(".['x\\.y']", json!(["dotted"]))]
    #[case(".x\\.y", json!(["dotted"]))]
    #[case(".none.at.all", json!([]))]
    fn paths_lead_to_values(#[case] path: &str, #[case] expected: Value) {
        let object = json!({
            "a": {"b": 1}, "x.y": "dotted",
            "list": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}, {"n": 3}],
        });
        let found = Path::parse(path).unwrap().find(&object);
        assert_eq!(json!(found.unwrap()), expected, "{path}");
    }

    #[rstest]
    #[case::no_such_item(".list[9]")]
    #[case::no_such_item_from_the_end(".list[-9]")]
    #[case::beyond(".list[0:9]")]
    #[case::backwards(".list[1:0]")]
    #[case::no_step(".list[0:1:0]")]
    #[case::no_list(".a[0]")]
    #[case::nothing_to_filter(".a[?(@.b)]")]
    #[case::other_types(".list[?(@.n=='1')]")]
    fn a_path_can_fail(#[case] path: &str) {
        let object = json!({"a": {"b": 1}, "list": [{"n": 1}]});
        assert_eq!(Path::parse(path).unwrap().find(&object), None);
    }

    #[rstest]
    #[case("a")]
    #[case(".a[")]
    #[case(".a[x]")]
    #[case(".a[?(@.b==1)")]
    #[case(".a[?(@.b=1)]")]
    #[case(".a\\")]
    fn other_texts_are_no_paths(#[case] text: &str) {
        assert_eq!(Path::parse(text), None);
    }
}
