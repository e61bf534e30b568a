//! Requests to the API server and typed responses, on top of [`kube::Client::send`].
//!
//! A [`Request`] has its own Accept header, a deadline that includes the body, and a limit on the
//! size of the response. Every failure is a [`RequestError`], and its [`ErrorClass`] says how a
//! caller handles it. Nothing here retries: the workqueue and the informer do that.

mod class;
mod error;
mod protobuf_status;
mod request;
mod status;

pub use class::ErrorClass;
pub use error::RequestError;
pub use request::{
    Answer, AnswerStream, DEFAULT_BODY_LIMIT, DEFAULT_TIMEOUT, JSON, METADATA_ONLY,
    METADATA_ONLY_AS_PROTOBUF, PatchKind, Request, media_type,
};
pub use status::{ApiError, Cause, Details};

#[cfg(test)]
mod tests;
