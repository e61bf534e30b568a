//! Unpacks compressed nodes as a stream, within bounds.

use std::io::{self, Read};
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use flate2::read::GzDecoder;
use tokio::time::Instant;

use super::Unread;
use super::scan::{Members, Scanner};

/// The largest table of nodes that is read, in bytes, once it is unpacked (T3). A workflow of
/// 20,000 nodes has some 20 MB.
pub const NODES_LIMIT: u64 = 256 << 20;

/// How long unpacking one table may take (T3). [`NODES_LIMIT`] takes a second on a CPU core of
/// its own.
pub const NODES_WITHIN: Duration = Duration::from_secs(30);

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// After this many pieces, other tasks get a turn.
const PIECES_IN_A_ROW: usize = 8;

/// Scans the members of the object in `packed`, which is gzip in base64. A small text can unpack to any
/// size, so no more than `limit` bytes of it are read.
pub(super) async fn unpack<M: Members>(packed: &[u8], limit: u64, members: M) -> Result<M, Unread> {
    let begun = Instant::now();
    let mut reader = GzDecoder::new(DecoderReader::new(packed, &STANDARD));
    let mut scanner = Scanner::new(members);
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    for pieces in 1_usize.. {
        let read = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Unread::Otherwise(in_words(&error))),
        };
        total += read as u64;
        if total > limit {
            return Err(Unread::TooLarge(format!(
                "its compressed nodes unpack to more than {} MiB",
                limit >> 20
            )));
        }
        if begun.elapsed() > NODES_WITHIN {
            return Err(Unread::TooLarge(format!(
                "its compressed nodes take more than {} s to unpack",
                NODES_WITHIN.as_secs()
            )));
        }
        scanner.push(&piece[..read])?;
        if pieces.is_multiple_of(PIECES_IN_A_ROW) {
            tokio::task::yield_now().await;
        }
    }
    Ok(scanner.finish()?)
}

fn in_words(error: &io::Error) -> String {
    let cause = error.get_ref();
    if cause.is_some_and(|cause| cause.is::<base64::DecodeError>()) {
        format!("its compressed nodes are not valid base64: {error}")
    } else {
        format!("its compressed nodes are not valid gzip: {error}")
    }
}
