//! The syntax of label selectors, with the error texts of the real server's parser.

use super::{Operator, Requirement};
use crate::validate;

const SPECIAL: &[char] = &['=', '!', '(', ')', ',', '>', '<'];
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    End,
    Word,
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Unknown,
}

/// Whether `in` and `notin` are operators or identifiers here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    Operator,
    Value,
}

/// Parses a selector.
///
/// # Errors
/// Why it cannot be parsed.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    let mut requirements = Vec::new();
    loop {
        match parser.peek(Context::Value) {
            (Token::End, _) => return Ok(requirements),
            (Token::Word | Token::Not, _) => {}
            (_, found) => {
                return Err(format!(
                    "found '{found}', expected: !, identifier, or 'end of string'"
                ));
            }
        }
        let requirement = parser.requirement();
        requirements
            .push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
        match parser.next(Context::Value) {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) => match parser.peek(Context::Value) {
                (Token::Word | Token::Not, _) => {}
                (_, found) => {
                    return Err(format!("found '{found}', expected: identifier after ','"));
                }
            },
            (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
        }
    }
}

fn tokens(text: &str) -> Vec<(Token, String)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if SPECIAL.contains(&first) {
            let two = rest.get(..2).filter(|two| matches!(*two, "==" | "!="));
            two.map_or(1, str::len)
        } else {
            let ends = |c: char| c.is_whitespace() || SPECIAL.contains(&c);
            rest.find(ends).unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(length);
        tokens.push((token(word), word.to_owned()));
        rest = after.trim_start();
    }
    tokens
}

fn token(word: &str) -> Token {
    match word {
        "," => Token::Comma,
        "(" => Token::Open,
        ")" => Token::Close,
        "!" => Token::Not,
        "=" | "==" => Token::Equals,
        "!=" => Token::NotEquals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "in" => Token::In,
        "notin" => Token::NotIn,
        word if word.starts_with(SPECIAL) => Token::Unknown,
        _ => Token::Word,
    }
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    fn peek(&self, context: Context) -> (Token, String) {
        let Some((token, word)) = self.tokens.get(self.at) else {
            return (Token::End, String::new());
        };
        let token = match token {
            Token::In | Token::NotIn if context == Context::Value => Token::Word,
            token => *token,
        };
        (token, word.clone())
    }

    fn next(&mut self, context: Context) -> (Token, String) {
        let next = self.peek(context);
        self.at += 1;
        next
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next(Context::Value);
        let absent = token == Token::Not;
        if absent {
            (token, key) = self.next(Context::Value);
        }
        if token != Token::Word {
            return Err(format!("found '{key}', expected: identifier"));
        }
        if let Some(why) = validate::qualified_name(&key) {
            return Err(format!("<nil>: Invalid value: {key:?}: {why}"));
        }
        let ends = matches!(self.peek(Context::Value).0, Token::End | Token::Comma);
        let operator = match (absent, ends) {
            (true, _) => Operator::DoesNotExist,
            (false, true) => Operator::Exists,
            (false, false) => self.operator(&key)?,
        };
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, String> {
        let (token, found) = self.next(Context::Operator);
        let operator = match token {
            Token::In => Operator::In(self.values()?),
            Token::NotIn => Operator::NotIn(self.values()?),
            Token::Equals => Operator::In(vec![self.value()?]),
            Token::NotEquals => Operator::NotIn(vec![self.value()?]),
            Token::Greater => Operator::GreaterThan(self.number()?),
            Token::Less => Operator::LessThan(self.number()?),
            _ => return Err(format!("found '{found}', expected: {OPERATORS}")),
        };
        if let Operator::In(values) | Operator::NotIn(values) = &operator {
            if values.is_empty() {
                return Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into());
            }
            for (index, value) in values.iter().enumerate() {
                if let Some(why) = validate::label_value(value) {
                    return Err(format!(
                        "values[{index}][{key}]: Invalid value: {value:?}: {why}"
                    ));
                }
            }
        }
        Ok(operator)
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        })
    }

    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(Context::Value).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next(Context::Value) {
            (Token::Word, value) => Ok(value),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (token, found) = self.next(Context::Value);
        if token != Token::Open {
            return Err(format!("found '{found}' expected: '('"));
        }
        let values = match self.peek(Context::Value) {
            (Token::Word | Token::Comma, _) => self.list()?,
            (Token::Close, _) => Vec::new(),
            (_, found) => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
        };
        match self.next(Context::Value) {
            (Token::Close, _) => Ok(values),
            (_, found) => Err(format!("found '{found}', expected: ')'")),
        }
    }

    fn list(&mut self) -> Result<Vec<String>, String> {
        let mut values: Vec<String> = Vec::new();
        loop {
            match self.next(Context::Value) {
                (Token::Word, value) => {
                    values.push(value);
                    match self.peek(Context::Value) {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => break,
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek(Context::Value).0 {
                        Token::Close => {
                            values.push(String::new());
                            break;
                        }
                        Token::Comma => {
                            self.at += 1;
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}
