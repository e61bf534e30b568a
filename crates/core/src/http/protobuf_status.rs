use super::status::RawStatus;
use super::{Cause, Details};
use crate::slim::DecodeError;
use crate::slim::protobuf::{Envelope, Fields};

impl RawStatus {
    /// Parses a `Status` in protobuf.
    pub(super) fn from_protobuf(bytes: &[u8]) -> Result<Self, DecodeError> {
        let envelope = Envelope::open(bytes)?;
        let mut status = Self {
            kind: String::from_utf8_lossy(envelope.kind).into_owned(),
            ..Self::default()
        };
        for field in Fields::of(envelope.message) {
            let field = field?;
            match field.number {
                3 => status.message = field.text("message")?.into_owned(),
                4 => status.reason = field.text("reason")?.into_owned(),
                5 => status.details = Some(details(field.bytes("details")?)?),
                6 => status.code = u16::try_from(field.integer("code")?).unwrap_or_default(),
                _ => {}
            }
        }
        Ok(status)
    }
}

fn details(message: &[u8]) -> Result<Details, DecodeError> {
    let mut details = Details::default();
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            1 => details.name = field.text("details.name")?.into_owned(),
            2 => details.group = field.text("details.group")?.into_owned(),
            3 => details.kind = field.text("details.kind")?.into_owned(),
            4 => details.causes.push(cause(field.bytes("details.causes")?)?),
            5 => {
                let seconds = field.integer("details.retryAfterSeconds")?;
                details.retry_after_seconds = u32::try_from(seconds).unwrap_or_default();
            }
            6 => details.uid = field.text("details.uid")?.into_owned(),
            _ => {}
        }
    }
    Ok(details)
}

fn cause(message: &[u8]) -> Result<Cause, DecodeError> {
    let mut cause = Cause::default();
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            1 => cause.reason = field.text("details.causes.reason")?.into_owned(),
            2 => cause.message = field.text("details.causes.message")?.into_owned(),
            3 => cause.field = field.text("details.causes.field")?.into_owned(),
            _ => {}
        }
    }
    Ok(cause)
}
