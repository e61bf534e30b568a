use bytes::{Buf, Bytes, BytesMut};

use super::Framing;

/// How many bytes of an oversized frame are kept: enough to identify the object.
const PREFIX: usize = 4096;

/// A piece of a watch stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// One event, without its framing.
    Whole(Bytes),
    /// The beginning of an event that exceeds the limit. The rest was dropped.
    TooLong(Bytes),
}

/// Splits a byte stream into frames. Holds at most one frame and one chunk.
#[derive(Debug)]
pub(crate) struct Frames {
    framing: Framing,
    limit: usize,
    buffer: BytesMut,
    /// The number of bytes that were searched for a line end.
    scanned: usize,
    skipping: Option<Skip>,
}

/// A frame that is being dropped.
#[derive(Debug)]
struct Skip {
    prefix: Bytes,
    /// The bytes still to be dropped; only used if frames carry their length.
    left: usize,
}

impl Frames {
    pub(crate) fn new(framing: Framing, limit: usize) -> Self {
        Self {
            framing,
            limit,
            buffer: BytesMut::new(),
            scanned: 0,
            skipping: None,
        }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete frame, if there is one. Call it until it returns `None` before pushing
    /// more.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        match self.framing {
            Framing::Lines => self.next_line(),
            Framing::LengthPrefixed => self.next_prefixed(),
        }
    }

    /// The rest of the stream at its end: a last line without a line end, which may be complete. A
    /// frame with a length prefix is either complete or dropped.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        let rest = std::mem::take(&mut self.buffer).freeze();
        self.scanned = 0;
        let line = self.framing == Framing::Lines && self.skipping.is_none();
        let line = line && rest.len() <= self.limit && !rest.iter().all(u8::is_ascii_whitespace);
        line.then_some(rest)
    }

    fn next_line(&mut self) -> Option<Frame> {
        loop {
            let end = self.buffer[self.scanned..]
                .iter()
                .position(|byte| *byte == b'\n');
            let Some(end) = end.map(|found| self.scanned + found) else {
                self.scanned = self.buffer.len();
                if self.scanned > self.limit || self.skipping.is_some() {
                    self.start_skipping(0);
                    self.buffer.clear();
                    self.scanned = 0;
                }
                return None;
            };
            let line = self.buffer.split_to(end + 1).freeze().slice(..end);
            self.scanned = 0;
            if let Some(skip) = self.skipping.take() {
                return Some(Frame::TooLong(skip.prefix));
            }
            if line.len() > self.limit {
                return Some(Frame::TooLong(line.slice(..PREFIX.min(line.len()))));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Frame::Whole(line));
            }
        }
    }

    fn next_prefixed(&mut self) -> Option<Frame> {
        loop {
            if let Some(skip) = &mut self.skipping {
                let now = skip.left.min(self.buffer.len());
                self.buffer.advance(now);
                skip.left -= now;
                if skip.left > 0 {
                    return None;
                }
                return self.skipping.take().map(|skip| Frame::TooLong(skip.prefix));
            }
            let length = u32::from_be_bytes(self.buffer.get(..4)?.try_into().ok()?);
            let length = usize::try_from(length).ok()?;
            if length > self.limit {
                if self.buffer.len() < 4 + PREFIX.min(length) {
                    return None;
                }
                self.buffer.advance(4);
                self.start_skipping(length);
                continue;
            }
            if self.buffer.len() < 4 + length {
                return None;
            }
            self.buffer.advance(4);
            return Some(Frame::Whole(self.buffer.split_to(length).freeze()));
        }
    }

    fn start_skipping(&mut self, left: usize) {
        if self.skipping.is_none() {
            let prefix = self.buffer[..PREFIX.min(self.buffer.len())].to_vec().into();
            self.skipping = Some(Skip { prefix, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(framing: Framing, limit: usize, chunks: &[&[u8]]) -> Vec<Frame> {
        let mut frames = Frames::new(framing, limit);
        let mut found = Vec::new();
        for chunk in chunks {
            frames.push(chunk);
            found.extend(std::iter::from_fn(|| frames.next()));
        }
        found
    }

    fn whole(text: &'static str) -> Frame {
        Frame::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_may_be_split_anywhere() {
        let frames = cut(Framing::Lines, 100, &[b"a", b"b\n\ncd", b"\n", b"e\nf"]);
        assert_eq!(frames, [whole("ab"), whole("cd"), whole("e")]);
    }

    #[test]
    fn a_line_that_is_too_long_does_not_affect_the_others() {
        let long = Frame::TooLong(Bytes::from_static(b"0123456"));
        let frames = cut(Framing::Lines, 5, &[b"a\n0123456", b"789", b"0\nb\n"]);
        assert_eq!(frames, [whole("a"), long, whole("b")]);
        let long = Frame::TooLong(Bytes::from_static(b"0123456"));
        assert_eq!(
            cut(Framing::Lines, 5, &[b"0123456\nb\n"]),
            [long, whole("b")]
        );
    }

    #[test]
    fn a_prefixed_frame_that_is_too_long_does_not_affect_the_others() {
        let mut bytes = 9000_u32.to_be_bytes().to_vec();
        bytes.extend(vec![7; 9000]);
        bytes.extend(1_u32.to_be_bytes());
        bytes.push(b'x');
        let chunks: Vec<&[u8]> = bytes.chunks(1000).collect();
        let expected = [Frame::TooLong(vec![7; PREFIX].into()), whole("x")];
        assert_eq!(cut(Framing::LengthPrefixed, 5000, &chunks), expected);
    }

    #[test]
    fn a_prefixed_frame_may_be_empty() {
        let bytes = [0, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 1, b'b'];
        let frames = cut(Framing::LengthPrefixed, 100, &[&bytes]);
        assert_eq!(frames, [whole("a"), whole(""), whole("b")]);
    }

    fn rest(framing: Framing, limit: usize, chunks: &[&[u8]]) -> Option<Bytes> {
        let mut frames = Frames::new(framing, limit);
        for chunk in chunks {
            frames.push(chunk);
            while frames.next().is_some() {}
        }
        let rest = frames.rest();
        assert_eq!(frames.next(), None);
        rest
    }

    #[test]
    fn only_a_line_may_lack_its_end() {
        let lines = |chunks| rest(Framing::Lines, 5, chunks);
        assert_eq!(lines(&[b"a\nb", b"c"]).as_deref(), Some(&b"bc"[..]));
        assert_eq!(lines(&[b"a\nb\n"]), None);
        assert_eq!(lines(&[b"a\n \t"]), None);
        assert_eq!(lines(&[b"0123456", b"7"]), None);
        let cut = [0, 0, 0, 2, b'a'];
        assert_eq!(rest(Framing::LengthPrefixed, 5, &[&cut]), None);
    }

    proptest! {
        /// Any bytes in any pieces: no frame is longer than the limit, and no more than a frame and a piece is
        /// kept.
        #[test]
        fn fuzz_any_stream_is_cut_within_bounds(
            pieces in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..60),
                    // Lengths and line ends that make sense.
                    (0_u32..80).prop_map(|length| length.to_be_bytes().to_vec()),
                    "[a-z\n]{0,30}".prop_map(String::into_bytes),
                ],
                0..40,
            ),
            limit in 0_usize..50,
        ) {
            for framing in [Framing::Lines, Framing::LengthPrefixed] {
                let mut frames = Frames::new(framing, limit);
                for piece in &pieces {
                    frames.push(piece);
                    while let Some(frame) = frames.next() {
                        match frame {
                            Frame::Whole(bytes) => prop_assert!(bytes.len() <= limit),
                            Frame::TooLong(prefix) => prop_assert!(prefix.len() <= PREFIX),
                        }
                    }
                    // Of an oversized frame with a length, its beginning is kept until it is long enough.
                    let kept = limit.max(PREFIX) + 4 + piece.len();
                    prop_assert!(frames.buffer.len() <= kept, "{}", frames.buffer.len());
                }
                prop_assert!(frames.rest().is_none_or(|rest| rest.len() <= limit));
            }
        }

        #[test]
        fn frames_do_not_depend_on_how_the_stream_is_split(
            frames in proptest::collection::vec("[a-z]{1,40}", 0..20),
            size in 1_usize..50,
        ) {
            let expected: Vec<_> =
                frames.iter().map(|f| Frame::Whole(Bytes::from(f.clone()))).collect();
            let lines: Vec<u8> = frames.iter().flat_map(|f| [f.as_bytes(), b"\n"].concat()).collect();
            let chunks: Vec<&[u8]> = lines.chunks(size).collect();
            prop_assert_eq!(&cut(Framing::Lines, 100, &chunks), &expected);
            let prefixed: Vec<u8> = frames
                .iter()
                .flat_map(|f| [&u32::try_from(f.len()).unwrap().to_be_bytes(), f.as_bytes()].concat())
                .collect();
            let chunks: Vec<&[u8]> = prefixed.chunks(size).collect();
            prop_assert_eq!(&cut(Framing::LengthPrefixed, 100, &chunks), &expected);
        }
    }
}
