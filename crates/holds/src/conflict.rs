//! What an error answer to a write leads to. What a conflict means depends on the write, so each write names
//! it: [`OnConflict`].

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::workqueue::Backoff;

/// What a conflict (409) with a write means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// A patch of finalizers, which names the object's version: the object has changed. It is read again, and
    /// the decision is made again, at once.
    Reread,
    /// A status, which names the object's version: somebody has written the object. Its key comes back soon,
    /// when the store has seen that.
    Requeue,
    /// A delete by UID: another object has the name, so this one is gone.
    Done,
    /// A create: the name is taken. Whose object has it is looked up.
    LookUp,
}

/// What follows from an error answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing: the object is gone.
    Over,
    /// What the server has now must be looked at: the object has changed, or its name is taken.
    Look,
    /// The server refuses the write until somebody changes something. The key comes back slowly.
    Denied,
    /// The key comes back.
    Retry(Backoff),
}

impl OnConflict {
    /// What follows from `error`, the answer to a write to the object of this kind and key.
    pub fn after(self, error: &RequestError, (kind, key): (&Resource, &ObjectKey)) -> After {
        let floor = error.retry_after().unwrap_or_default();
        let soon = After::Retry(Backoff::CONFLICT.at_least(floor));
        match (error.class(), self) {
            (ErrorClass::NotFound, Self::Reread | Self::Done) if error.is_gone(kind, key) => {
                After::Over
            }
            (ErrorClass::Conflict, Self::Done) => After::Over,
            (ErrorClass::Conflict, Self::Reread) | (ErrorClass::AlreadyExists, Self::LookUp) => {
                After::Look
            }
            // Another object has the name.
            (ErrorClass::Invalid, Self::Reread) if error.names_uid() => After::Look,
            (ErrorClass::NotFound | ErrorClass::Conflict, _) => soon,
            (ErrorClass::Forbidden | ErrorClass::Invalid, _) => After::Denied,
            _ => After::Retry(Backoff::ERROR.at_least(floor)),
        }
    }

    /// The answer to a write to the object of this kind and key; `None` if the conflict answers it: with
    /// [`Done`](Self::Done) the object is gone, else what the server has now must be looked at.
    ///
    /// # Errors
    ///
    /// Every other error.
    pub fn settle<T>(
        self,
        answer: Result<T, RequestError>,
        about: (&Resource, &ObjectKey),
    ) -> Result<Option<T>, RequestError> {
        answer
            .map(Some)
            .or_else(|error| match self.after(&error, about) {
                After::Over | After::Look => Ok(None),
                After::Denied | After::Retry(_) => Err(error),
            })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use OnConflict::{Done, LookUp, Requeue, Reread};
    use belayer_core::http::ApiError;

    const SOON: After = After::Retry(Backoff::CONFLICT);
    const LATER: After = After::Retry(Backoff::ERROR);

    fn error(code: u16, reason: &str, more: &str) -> RequestError {
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"{reason}","message":"{more}",
            "details":{{"name":"web","kind":"pods"}}}}"#
        );
        ApiError::from_answer(code, None, body.as_bytes()).into()
    }

    #[rstest]
    #[case::changed(error(409, "Conflict", ""), [After::Look, SOON, After::Over, SOON])]
    #[case::taken(error(409, "AlreadyExists", ""), [LATER, LATER, LATER, After::Look])]
    #[case::gone(error(404, "NotFound", ""), [After::Over, SOON, After::Over, SOON])]
    #[case::another_uid(error(422, "Invalid", "metadata.uid"), [After::Look, After::Denied, After::Denied, After::Denied])]
    #[case::invalid(error(422, "Invalid", ""), [After::Denied; 4])]
    #[case::refused(error(403, "Forbidden", ""), [After::Denied; 4])]
    #[case::busy(error(503, "ServiceUnavailable", ""), [LATER; 4])]
    fn what_follows(#[case] error: RequestError, #[case] expected: [After; 4]) {
        let key = ObjectKey::new("shop", "web");
        let pods = Resource::pods();
        let after = |on: OnConflict| on.after(&error, (&pods, &key));
        assert_eq!([Reread, Requeue, Done, LookUp].map(after), expected);
    }

    #[test]
    fn what_is_not_there_is_not_this_object() {
        let (pods, other) = (Resource::pods(), ObjectKey::new("shop", "db"));
        let error = error(404, "NotFound", "");
        assert_eq!(Done.after(&error, (&pods, &other)), SOON);
    }
}
