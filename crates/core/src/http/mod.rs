//! Requests to the API server and typed answers: what lies between [`kube::Client::send`], which
//! judges nothing, and those who ask.
//!
//! A [`Request`] carries its own Accept header, a deadline that includes the body, and a limit on
//! the size of the answer. Whatever goes wrong is a [`RequestError`], sorted by
//! [`ErrorClass`] into what a caller does about it. Nothing here retries: that is the queue's and
//! the informer's business.

mod error;
mod protobuf_status;
mod request;
mod status;

pub use error::{ErrorClass, RequestError};
pub use request::{
    Answer, AnswerStream, DEFAULT_BODY_LIMIT, DEFAULT_TIMEOUT, JSON, METADATA_ONLY,
    METADATA_ONLY_AS_PROTOBUF, PatchKind, Request, media_type,
};
pub use status::{ApiError, Cause, Details};

#[cfg(test)]
mod tests;
