use super::Fields;
use crate::slim::DecodeError;

/// The media type.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every object outside of a list.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// The envelope of an object: its kind and its message. A
/// [`ProtobufDecoder`](crate::informer::ProtobufDecoder) removes it;
/// [`SlimProtobuf`](crate::slim::protobuf::SlimProtobuf) sees only the message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `kind`, such as `PodList` or `Status`.
    pub kind: &'a [u8],
    /// The message.
    pub message: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Decodes the envelope.
    ///
    /// # Errors
    ///
    /// If the bytes do not begin with the magic number, or are truncated.
    pub fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let inside = bytes.strip_prefix(&MAGIC).ok_or_else(|| {
            DecodeError::Format("not Kubernetes protobuf: the magic number is missing".into())
        })?;
        let mut envelope = Self::default();
        envelope.read(Fields::of(inside))?;
        Ok(envelope)
    }

    /// The same for bytes that may be truncated: decodes as much as possible.
    pub fn open_broken(bytes: &'a [u8]) -> Option<Self> {
        let mut envelope = Self::default();
        // An error is ignored: the fields before it are used.
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
                    return Err(DecodeError::Format(
                        "the object has an unsupported contentEncoding".into(),
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
