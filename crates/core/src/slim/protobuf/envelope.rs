use super::Fields;
use crate::slim::DecodeError;

/// Media type.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What every object begins with, outside of lists.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// What an object is wrapped in: its kind, and the message itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `kind`, such as `PodList` or `Status`.
    pub kind: &'a [u8],
    /// The message.
    pub message: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Unwraps an object.
    ///
    /// # Errors
    ///
    /// When the bytes do not begin as they must, or break off.
    pub fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let inside = bytes
            .strip_prefix(&MAGIC)
            .ok_or_else(|| DecodeError::Format("these bytes are no Kubernetes protobuf".into()))?;
        let mut envelope = Self::default();
        envelope.read(Fields::of(inside))?;
        Ok(envelope)
    }

    /// The same for bytes that may break off: what is there is taken.
    pub fn open_broken(bytes: &'a [u8]) -> Option<Self> {
        let mut envelope = Self::default();
        // Where it breaks off does not matter: what was read before stands.
        let _ = envelope.read(Fields::of_broken(bytes.strip_prefix(&MAGIC)?));
        Some(envelope)
    }

    fn read(&mut self, fields: Fields<'a>) -> Result<(), DecodeError> {
        for field in fields {
            let field = field?;
            match field.number {
                1 => {
                    for field in Fields::of(field.bytes("typeMeta")?) {
                        let field = field?;
                        if field.number == 2 {
                            self.kind = field.bytes("kind")?;
                        }
                    }
                }
                2 => self.message = field.bytes("the object")?,
                3 if !field.bytes("contentEncoding")?.is_empty() => {
                    return Err(DecodeError::Format("the object is encoded again".into()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
