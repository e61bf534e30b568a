use std::borrow::Cow;

use jiff::Timestamp;

use crate::slim::DecodeError;

/// The fields of one protobuf message in the order of the bytes. Nothing is copied: strings,
/// bytes and nested messages borrow.
///
/// A field that is of no interest costs a look at its tag and its length.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
    cut: Cut,
}

/// What to make of a field that is longer than the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The message is damaged.
    Refused,
    /// It broke off: what is there is taken.
    Taken,
}

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its number in the message's definition.
    pub number: u32,
    /// Its value, as it travels.
    pub value: Value<'a>,
}

/// A value as it travels.
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

/// Longest varint of 64 bits.
const MOST_VARINT_BYTES: usize = 10;

impl<'a> Fields<'a> {
    /// The fields of `message`.
    pub fn of(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            cut: Cut::Refused,
        }
    }

    /// The fields of a message that may break off anywhere.
    pub fn of_broken(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            cut: Cut::Taken,
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let there = match self.cut {
            Cut::Refused if length > self.rest.len() => return Err(broken_off()),
            _ => length.min(self.rest.len()),
        };
        let (taken, rest) = self.rest.split_at(there);
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for (at, byte) in self.rest.iter().take(MOST_VARINT_BYTES).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < MOST_VARINT_BYTES {
            broken_off()
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
                // A length beyond memory is a damaged one, whatever the machine.
                Value::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.array()?)),
            other => {
                return Err(DecodeError::Format(format!(
                    "field {number} is of the unknown type {other}"
                )));
            }
        };
        Ok(Field { number, value })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| broken_off())
    }
}

fn broken_off() -> DecodeError {
    DecodeError::Format("the message breaks off".to_owned())
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // There is no way to tell where the next one begins.
            self.rest = &[];
        }
        Some(field)
    }
}

impl<'a> Field<'a> {
    /// As bytes, or as a nested message.
    ///
    /// # Errors
    ///
    /// When it travels as a number. `path` says what was read.
    pub fn bytes(&self, path: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(Self::mismatch(path, other)),
        }
    }

    /// As a string. What is no UTF-8 becomes U+FFFD, as the API server's JSON has it.
    ///
    /// # Errors
    ///
    /// When it travels as a number.
    pub fn text(&self, path: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        self.bytes(path).map(String::from_utf8_lossy)
    }

    /// As a signed integer.
    ///
    /// # Errors
    ///
    /// When it travels as anything but a varint.
    pub fn integer(&self, path: &'static str) -> Result<i64, DecodeError> {
        match self.value {
            Value::Varint(number) => Ok(number.cast_signed()),
            other => Err(Self::mismatch(path, other)),
        }
    }

    /// As a boolean.
    ///
    /// # Errors
    ///
    /// When it travels as anything but a varint.
    pub fn boolean(&self, path: &'static str) -> Result<bool, DecodeError> {
        self.integer(path).map(|number| number != 0)
    }

    /// As the API's `Time`; an empty one is none.
    ///
    /// # Errors
    ///
    /// When it is no message of that kind, or a time beyond the calendar.
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
        DecodeError::Format(format!("{path} travels as {what}"))
    }
}

fn outside(path: &'static str, seconds: i64) -> DecodeError {
    DecodeError::value(path, &seconds.to_string())
}
