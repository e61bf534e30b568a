//! How to handle the error answer to a write. The meaning of a conflict depends on the write, so each write names
//! its [`OnConflict`].
//!
//! ```
//! use belayer_core::{ErrorClass, ObjectKey, RequestError, Resource};
//! use belayer_holds::conflict::{After, OnConflict};
//!
//! /// What to do after the error answer to a patch of a pod.
//! fn after(error: &RequestError, key: &ObjectKey) -> &'static str {
//!     match OnConflict::Reread.after(error, (&Resource::pods(), key)) {
//!         After::Over => "nothing: the object is gone",
//!         After::Read => "read the object and decide again",
//!         After::Denied => "wait until a user changes something",
//!         After::Retry(_) => "try again with backoff",
//!     }
//! }
//! ```

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::workqueue::Backoff;

/// What a conflict (409) with a write means. The [module's example](self) is that of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// For a patch of finalizers with resourceVersion: the object has changed. It is read, and the decision is
    /// repeated, at once.
    Reread,
    /// For a status update with resourceVersion: another client has written the object. Its key is requeued soon,
    /// when the store has the new version.
    Requeue,
    /// For a delete by UID: another object has the name, so this one is gone.
    Done,
    /// For a create: the name is taken. The existing object is read.
    LookUp,
}

/// How to proceed after an error answer to a write. Returned by
/// [`OnConflict::after`](crate::conflict::OnConflict::after).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Done: the object is gone.
    Over,
    /// Read the object: it has changed, or its name is taken.
    Read,
    /// The server rejects the write until a user changes something. The key is requeued after a long delay.
    Denied,
    /// The key is requeued.
    Retry(Backoff),
}

impl OnConflict {
    /// How to proceed after `error`, the answer to a write to the object of this kind and key.
    pub fn after(self, error: &RequestError, (kind, key): (&Resource, &ObjectKey)) -> After {
        let floor = error.retry_after().unwrap_or_default();
        let soon = After::Retry(Backoff::CONFLICT.at_least(floor));
        match (error.class(), self) {
            (ErrorClass::NotFound, Self::Reread | Self::Done) if error.is_gone(kind, key) => {
                After::Over
            }
            (ErrorClass::Conflict, Self::Done) => After::Over,
            (ErrorClass::Conflict, Self::Reread) | (ErrorClass::AlreadyExists, Self::LookUp) => {
                After::Read
            }
            // Another object has the name.
            (ErrorClass::Invalid, Self::Reread) if error.names_uid() => After::Read,
            (ErrorClass::NotFound | ErrorClass::Conflict, _) => soon,
            (ErrorClass::Forbidden | ErrorClass::Invalid, _) => After::Denied,
            _ => After::Retry(Backoff::ERROR.at_least(floor)),
        }
    }

    /// The answer to a write to the object of this kind and key; `None` if the conflict answers it: with
    /// [`Done`](Self::Done) the object is gone, else the object must be read.
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
                After::Over | After::Read => Ok(None),
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
    #[case::changed(error(409, "Conflict", ""), [After::Read, SOON, After::Over, SOON])]
    #[case::taken(error(409, "AlreadyExists", ""), [LATER, LATER, LATER, After::Read])]
    #[case::gone(error(404, "NotFound", ""), [After::Over, SOON, After::Over, SOON])]
    #[case::another_uid(error(422, "Invalid", "metadata.uid"), [After::Read, After::Denied, After::Denied, After::Denied])]
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
