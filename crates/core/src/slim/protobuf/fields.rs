use std::borrow::Cow;

use jiff::Timestamp;

use crate::slim::DecodeError;

/// The fields of one protobuf message in the order of the bytes. Nothing is copied: strings, bytes
/// and nested messages borrow.
///
/// Skipping a field costs the decoding of its tag and its length.
///
/// ```
/// use belayer_core::Fields;
/// use belayer_core::slim::DecodeError;
///
/// // Field 1 is the text "shop", field 2 the number 3.
/// for field in Fields::of(b"\x0a\x04shop\x10\x03") {
///     let field = field?;
///     match field.number {
///         1 => assert_eq!(field.text("name")?, "shop"),
///         _ => assert_eq!(field.integer("replicas")?, 3),
///     }
/// }
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
    /// Whether the message may be truncated anywhere: then a field that is longer than the bytes has the bytes there are.
    may_be_truncated: bool,
}

/// One field of a message. An item of [`Fields`](crate::slim::protobuf::Fields).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its number in the message's definition.
    pub number: u32,
    /// Its encoded value.
    pub value: Value<'a>,
}

/// An encoded value. Part of a [`Field`](crate::slim::protobuf::Field), whose methods check its
/// type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, a boolean or an enum.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// A string, bytes, a nested message or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

/// The maximum length of a 64-bit varint.
const MAX_VARINT_BYTES: usize = 10;

impl<'a> Fields<'a> {
    /// The fields of `message`.
    pub fn of(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            may_be_truncated: false,
        }
    }

    /// The fields of a message that may be truncated anywhere.
    pub fn of_broken(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            may_be_truncated: true,
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        if length > self.rest.len() && !self.may_be_truncated {
            return Err(truncated_message());
        }
        let there = length.min(self.rest.len());
        let (taken, rest) = self.rest.split_at(there);
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for (at, byte) in self.rest.iter().take(MAX_VARINT_BYTES).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < MAX_VARINT_BYTES {
            truncated_message()
        } else {
            DecodeError::Format("a number is longer than 64 bits".to_owned())
        })
    }

    fn field(&mut self) -> Result<Field<'a>, DecodeError> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3)
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| DecodeError::Format("a field has no number".to_owned()))?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                // A length beyond the address space is damaged, on any machine.
                Value::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            other => {
                return Err(DecodeError::Format(format!(
                    "field {number} has the unknown wire type {other}"
                )));
            }
        };
        Ok(Field { number, value })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| truncated_message())
    }
}

fn truncated_message() -> DecodeError {
    DecodeError::Format("the message is truncated".to_owned())
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // The beginning of the next field is unknown.
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Field<'a> {
    /// The value as bytes, or as a nested message.
    ///
    /// # Errors
    ///
    /// If it is encoded as a number. `path` names the field in the error.
    pub fn bytes(&self, path: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(Self::mismatch(path, other)),
        }
    }

    /// The value as a string. Invalid UTF-8 becomes U+FFFD, as in the API server's JSON.
    ///
    /// # Errors
    ///
    /// If it is encoded as a number.
    pub fn text(&self, path: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        self.bytes(path).map(String::from_utf8_lossy)
    }

    /// The value as a signed integer.
    ///
    /// # Errors
    ///
    /// If it is not encoded as a varint.
    pub fn integer(&self, path: &'static str) -> Result<i64, DecodeError> {
        match self.value {
            Value::Varint(number) => Ok(number.cast_signed()),
            other => Err(Self::mismatch(path, other)),
        }
    }

    /// The value as a boolean.
    ///
    /// # Errors
    ///
    /// If it is not encoded as a varint.
    pub fn boolean(&self, path: &'static str) -> Result<bool, DecodeError> {
        self.integer(path).map(|number| number != 0)
    }

    /// The value as the API's `Time`; `None` if empty.
    ///
    /// # Errors
    ///
    /// If it is not such a message, or the time is out of range.
    pub fn time(&self, path: &'static str) -> Result<Option<Timestamp>, DecodeError> {
        let message = self.bytes(path)?;
        if message.is_empty() {
            return Ok(None);
        }
        let (mut seconds, mut nanos) = (0, 0);
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => seconds = field.integer(path)?,
                2 => nanos = field.integer(path)?,
                _ => {}
            }
        }
        let nanos = i32::try_from(nanos).map_err(|_| outside(path, seconds))?;
        let time = Timestamp::new(seconds, nanos).map_err(|_| outside(path, seconds))?;
        Ok(Some(time))
    }

    fn mismatch(path: &'static str, value: Value<'_>) -> DecodeError {
        let what = match value {
            Value::Varint(_) => "a varint",
            Value::Fixed64(_) => "eight bytes",
            Value::Bytes(_) => "a string or message",
            Value::Fixed32(_) => "four bytes",
        };
        DecodeError::Format(format!("{path} is encoded as {what}"))
    }
}

fn outside(path: &'static str, seconds: i64) -> DecodeError {
    DecodeError::value(path, &seconds.to_string())
}
