//! Scans a JSON object that arrives in pieces, and passes on the members that the caller wants, one at a time.
//!
//! A table of nodes can be hundreds of megabytes once it is unpacked, and any user who may write
//! workflows can write one (T3). So nothing is kept of members that are not wanted, whatever their form:
//! neither long strings nor deep nesting. A member that is skipped is checked only as far as is necessary
//! to find its end; a member that is wanted is handed on as it is written, for a parser to check.

/// The longest name of a member that is compared, in bytes as it is written. Annotations name
/// nodes, and Argo's are shorter than 300.
const KEY_LIMIT: usize = 4 << 10;

/// The largest member that is handed on, in bytes. Only a few small fields of a node are read.
pub(super) const VALUE_LIMIT: usize = 1 << 20;

/// Receives the members of an object.
pub(super) trait Members {
    /// Whether the member of this name is to be handed on.
    fn wants(&self, name: &str) -> bool;

    /// A member that is wanted, as JSON; nothing if it is larger than [`VALUE_LIMIT`].
    fn member(&mut self, name: &str, json: Option<&[u8]>);
}

/// Where in the text the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the object.
    Start,
    /// Within `null`, which stands for no object; so many letters are read.
    Null(usize),
    /// After `{`.
    KeyOrEnd,
    /// After a comma.
    Key,
    /// Within a name.
    InKey(Text),
    /// After a name.
    Colon,
    /// Before a value.
    Value,
    /// Within a text, this deep in objects and arrays.
    InText(Text, u32),
    /// Within an object or array, this deep, outside of texts.
    Nested(u32),
    /// Within a number or a literal.
    Scalar,
    /// After a value.
    CommaOrEnd,
    /// After the object.
    End,
}

/// Where in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    Plain,
    /// After a backslash.
    Escaped,
}

/// Why a text is not a valid object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScanError {
    /// A byte is not valid at its place.
    #[error("byte {0} is not valid in a JSON object there")]
    Unexpected(u64),
    /// The text ends before the object does.
    #[error("the text ends inside a JSON object")]
    Ended,
}

/// The scanner. Its memory is bounded by [`KEY_LIMIT`] and [`VALUE_LIMIT`].
pub(super) struct Scanner<M> {
    members: M,
    at: At,
    /// Bytes before the current piece.
    passed: u64,
    /// The name as it is written, without its quotes.
    key: Vec<u8>,
    /// The name, if the member is wanted.
    wanted: Option<String>,
    value: Vec<u8>,
    too_large: bool,
}

impl<M: Members> Scanner<M> {
    pub(super) fn new(members: M) -> Self {
        Self {
            members,
            at: At::Start,
            passed: 0,
            key: Vec::new(),
            wanted: None,
            value: Vec::new(),
            too_large: false,
        }
    }

    /// Processes the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), ScanError> {
        let mut index = 0;
        while index < piece.len() {
            index = self.step(piece, index).ok_or_else(|| {
                ScanError::Unexpected(self.passed + u64::try_from(index).unwrap_or(u64::MAX))
            })?;
        }
        self.passed += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// The end of the text.
    pub(super) fn finish(self) -> Result<M, ScanError> {
        match self.at {
            At::End => Ok(self.members),
            _ => Err(ScanError::Ended),
        }
    }

    /// Continues at `index`; returns where it got to, or `None` if the text is not valid there.
    fn step(&mut self, piece: &[u8], index: usize) -> Option<usize> {
        match self.at {
            At::InKey(text) => return Some(self.in_key(piece, index, text)),
            At::InText(text, depth) => return Some(self.in_text(piece, index, text, depth)),
            At::Nested(depth) => return Some(self.nested(piece, index, depth)),
            _ => {}
        }
        let byte = piece[index];
        let next = match (self.at, byte) {
            (At::Scalar, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r') => {
                self.value_ends();
                self.at = At::CommaOrEnd;
                // The same byte is handled again, as what follows a value.
                return Some(index);
            }
            (At::Scalar, b'{' | b'[' | b'"' | b']' | b':') => return None,
            (At::Scalar, _) => {
                self.keep(&piece[index..=index]);
                At::Scalar
            }
            (now, b' ' | b'\t' | b'\n' | b'\r') => now,
            (At::Start, b'{') => At::KeyOrEnd,
            (At::Start, b'n') => At::Null(1),
            (At::Null(read), byte) if b"null".get(read) == Some(&byte) => match read {
                3 => At::End,
                read => At::Null(read + 1),
            },
            (At::KeyOrEnd | At::Key, b'"') => {
                self.key.clear();
                At::InKey(Text::Plain)
            }
            (At::KeyOrEnd | At::CommaOrEnd, b'}') => At::End,
            (At::CommaOrEnd, b',') => At::Key,
            (At::Colon, b':') => At::Value,
            (At::Value, byte) => {
                self.keep(&piece[index..=index]);
                match byte {
                    b'"' => At::InText(Text::Plain, 0),
                    b'{' | b'[' => At::Nested(1),
                    b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => At::Scalar,
                    _ => return None,
                }
            }
            _ => return None,
        };
        self.at = next;
        Some(index + 1)
    }

    fn in_key(&mut self, piece: &[u8], start: usize, text: Text) -> usize {
        let (end, now) = text_end(&piece[start..], text);
        let end = start + end;
        // One byte more than is compared, to show that it is too long.
        let room = (KEY_LIMIT + 1).saturating_sub(self.key.len());
        self.key
            .extend_from_slice(&piece[start..end.min(start + room)]);
        match now {
            Some(text) => {
                self.at = At::InKey(text);
                end
            }
            None => {
                self.key_ends();
                self.at = At::Colon;
                // Over the quote.
                end + 1
            }
        }
    }

    fn in_text(&mut self, piece: &[u8], start: usize, text: Text, depth: u32) -> usize {
        let (end, now) = text_end(&piece[start..], text);
        let mut end = start + end;
        match now {
            Some(text) => self.at = At::InText(text, depth),
            None => {
                end += 1;
                self.at = At::Nested(depth);
            }
        }
        self.keep(&piece[start..end]);
        if now.is_none() && depth == 0 {
            self.value_ends();
            self.at = At::CommaOrEnd;
        }
        end
    }

    fn nested(&mut self, piece: &[u8], start: usize, mut depth: u32) -> usize {
        for (offset, byte) in piece[start..].iter().enumerate() {
            let end = start + offset + 1;
            match byte {
                b'"' => {
                    self.at = At::InText(Text::Plain, depth);
                    self.keep(&piece[start..end]);
                    return end;
                }
                // No text that is read is nested deeper than this: it would be 4 GiB of brackets.
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.keep(&piece[start..end]);
                        self.value_ends();
                        self.at = At::CommaOrEnd;
                        return end;
                    }
                }
                _ => {}
            }
        }
        self.keep(&piece[start..]);
        self.at = At::Nested(depth);
        piece.len()
    }

    fn key_ends(&mut self) {
        self.wanted = None;
        self.value.clear();
        self.too_large = false;
        if self.key.len() > KEY_LIMIT {
            return;
        }
        let name = if self.key.contains(&b'\\') {
            let quoted = [b"\"", &*self.key, b"\""].concat();
            serde_json::from_slice::<String>(&quoted).ok()
        } else {
            match std::str::from_utf8(&self.key) {
                // Most are not wanted, and cost no allocation.
                Ok(name) if self.members.wants(name) => Some(name.to_owned()),
                _ => None,
            }
        };
        self.wanted = name.filter(|name| self.members.wants(name));
    }

    fn keep(&mut self, part: &[u8]) {
        if self.wanted.is_none() || self.too_large {
            return;
        }
        if self.value.len() + part.len() > VALUE_LIMIT {
            self.too_large = true;
            self.value = Vec::new();
            return;
        }
        self.value.extend_from_slice(part);
    }

    fn value_ends(&mut self) {
        if let Some(name) = self.wanted.take() {
            let whole = (!self.too_large).then_some(&*self.value);
            self.members.member(&name, whole);
        }
    }
}

/// Where a string ends (`None`), or its state if it does not end in this piece.
fn text_end(piece: &[u8], mut text: Text) -> (usize, Option<Text>) {
    for (index, byte) in piece.iter().enumerate() {
        text = match (text, byte) {
            (Text::Escaped, _) => Text::Plain,
            (Text::Plain, b'\\') => Text::Escaped,
            (Text::Plain, b'"') => return (index, None),
            (Text::Plain, _) => Text::Plain,
        };
    }
    (piece.len(), Some(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    /// Wants all members except `no`.
    #[derive(Default)]
    struct All(BTreeMap<String, Option<String>>);

    impl Members for All {
        fn wants(&self, name: &str) -> bool {
            name != "no"
        }

        fn member(&mut self, name: &str, json: Option<&[u8]>) {
            let json = json.map(|json| String::from_utf8(json.to_vec()).unwrap());
            self.0.insert(name.to_owned(), json);
        }
    }

    /// In pieces of so many bytes.
    fn scanned(text: &str, piece: usize) -> Result<BTreeMap<String, Option<String>>, ScanError> {
        let mut scanner = Scanner::new(All::default());
        for piece in text.as_bytes().chunks(piece) {
            scanner.push(piece)?;
        }
        Ok(scanner.finish()?.0)
    }

    #[rstest]
    #[case::nothing("")]
    #[case::a_list("[1]")]
    #[case::a_number("3")]
    #[case::broken_off(r#"{"a": {"b": 1}"#)]
    #[case::broken_off_in_a_text(r#"{"a": "b"#)]
    #[case::no_value(r#"{"a": }"#)]
    #[case::no_colon(r#"{"a" 1}"#)]
    #[case::no_comma(r#"{"a": 1 "b": 2}"#)]
    #[case::a_comma_too_many(r#"{"a": 1,}"#)]
    #[case::no_name("{1: 1}")]
    #[case::something_behind("{} {}")]
    #[case::half_a_null("nul")]
    fn invalid_objects_are_rejected(#[case] text: &str) {
        for piece in [1, 2, 1000] {
            assert!(scanned(text, piece).is_err(), "{text} in {piece}");
        }
    }

    #[rstest]
    #[case::null("null")]
    #[case::spaced(" null\n")]
    #[case::empty(" { } ")]
    #[case::not_wanted(r#"{"no": [[["]}\"{", {}]]]}"#)]
    fn an_object_of_nothing_has_no_members(#[case] text: &str) {
        assert_eq!(scanned(text, 1), Ok(BTreeMap::new()));
        assert_eq!(scanned(text, 1000), Ok(BTreeMap::new()));
    }

    #[test]
    fn a_member_that_is_too_large_is_skipped_and_reported() {
        let long = "x".repeat(VALUE_LIMIT);
        let text = format!(r#"{{"a": "{long}", "{long}": 1, "b": 2}}"#);
        let found = scanned(&text, 1 << 16).unwrap();
        let expected = [
            ("a".to_owned(), None),
            ("b".to_owned(), Some("2".to_owned())),
        ];
        assert_eq!(found, BTreeMap::from(expected));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        /// However an object is cut into pieces, the scan finds the same members as a parser.
        #[test]
        fn members_are_those_of_a_parser(
            object in prop::collection::btree_map(any::<String>(), values(), 0..6),
            piece in 1_usize..9,
            pretty: bool,
        ) {
            let object = Value::from_iter(object);
            let text = if pretty { format!("{object:#}") } else { object.to_string() };
            let found = scanned(&text, piece).unwrap();
            let found = found.into_iter().map(|(name, json)| {
                let value: Value = serde_json::from_str(&json.unwrap()).unwrap();
                (name, value)
            });
            prop_assert_eq!(Value::from_iter(found), object);
        }

        #[test]
        fn no_text_makes_it_panic(text in r#"[{}\[\]",:\\ntf0 a-]{0,40}"#, piece in 1_usize..9) {
            let _ = scanned(&text, piece);
        }
    }
}
