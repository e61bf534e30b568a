//! Requests to the API server and typed responses, on top of [`kube::Client::send`].
//!
//! A [`Request`] has its own Accept header, a deadline that includes the body, and a limit on the
//! size of the response. Every failure is a [`RequestError`], and its [`ErrorClass`] says how a
//! caller handles it. Nothing here retries: the workqueue and the informer do that.
//!
//! ```no_run
//! use belayer_core::{ErrorClass, ObjectKey, Request, Resource};
//!
//! # async fn read(client: kube::Client) {
//! let (pods, key) = (Resource::pods(), ObjectKey::new("shop", "web-0"));
//! match Request::get(pods.object_path(&key)).send(&client).await {
//!     Ok(answer) => println!("{} bytes", answer.body.len()),
//!     // The server names this object: a 404 of a proxy is no evidence.
//!     Err(error) if error.is_gone(&pods, &key) => println!("it does not exist"),
//!     Err(error) if error.class() == ErrorClass::TooManyRequests => println!("{:?}", error.retry_after()),
//!     Err(error) => println!("{}", error.message()),
//! }
//! # }
//! ```

mod class;
mod error;
mod pages;
mod protobuf_status;
mod request;
mod status;

pub use class::ErrorClass;
pub use error::RequestError;
pub use pages::Pages;
pub use request::{
    Answer, AnswerStream, DEFAULT_BODY_LIMIT, DEFAULT_TIMEOUT, JSON, METADATA_ONLY,
    METADATA_ONLY_AS_PROTOBUF, METADATA_ONLY_LIST, PatchKind, Request, media_type,
};
pub use status::{ApiError, Cause, Details};

#[cfg(test)]
mod tests;
