//! Response bodies: whole, or a stream of watch events.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use http_body::{Body, Frame, SizeHint};

/// The body of a response. Part of the response of a [`SandboxService`](crate::SandboxService),
/// which the client of the [crate's example](crate) reads.
pub struct SandboxBody(Inner);

enum Inner {
    Whole(Option<Bytes>),
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

impl SandboxBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        SandboxBody(Inner::Whole(Some(bytes.into())))
    }

    pub(crate) fn stream(stream: BoxStream<'static, io::Result<Bytes>>) -> Self {
        SandboxBody(Inner::Stream(stream))
    }
}

impl fmt::Debug for SandboxBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Inner::Whole(_) => "whole",
            Inner::Stream(_) => "stream",
        };
        f.debug_tuple("SandboxBody").field(&kind).finish()
    }
}

impl Body for SandboxBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Inner::Whole(bytes) => {
                let bytes = bytes.take().filter(|b| !b.is_empty());
                Poll::Ready(bytes.map(|b| Ok(Frame::data(b))))
            }
            Inner::Stream(stream) => stream
                .poll_next_unpin(cx)
                .map(|next| next.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}
