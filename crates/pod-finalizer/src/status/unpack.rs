//! Unpacks compressed nodes as a stream, within bounds.

use std::error::Error;
use std::io::{self, BufReader, Cursor, Read};
use std::time::Duration;

use base64::DecodeError;
use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use flate2::read::GzDecoder;
use ruzstd::decoding::StreamingDecoder;
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

/// The largest window of zstd that is accepted, in bytes: the decoder keeps that much in memory (T3). Argo's
/// library never writes a larger one. A window of brotli has at most 16 MiB by its format.
const ZSTD_WINDOW: u64 = 32 << 20;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Scans the members of the object in `packed`, which is compressed and encoded in base64. A small text can
/// unpack to any size, so no more than `limit` bytes of it are read.
///
/// Argo 4.1 compresses by gzip, zstd or brotli (its `WORKFLOW_COMPRESSION_ALGORITHM`), and tells them apart by
/// their first bytes: brotli has no magic number and is what is left (A9).
pub(super) async fn unpack<M: Members>(packed: &[u8], limit: u64, members: M) -> Result<M, Unread> {
    let begun = Instant::now();
    let (format, mut reader) = decoder(packed)?;
    let mut scanner = Scanner::new(members);
    let mut piece = vec![0; PIECE];
    let mut total = 0;
    for pieces in 1_usize.. {
        let read = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(invalid(format, &error)),
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

/// The format of what is packed, and a reader of what it unpacks to.
fn decoder(packed: &[u8]) -> Result<(&'static str, Box<dyn Read + Send + '_>), Unread> {
    let mut decoded = DecoderReader::new(packed, &STANDARD);
    let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
    (&mut decoded)
        .take(ZSTD_MAGIC.len() as u64)
        .read_to_end(&mut head)
        .map_err(|error| invalid("base64", &error))?;
    let (gzip, zstd) = (head.starts_with(&GZIP_MAGIC), head.starts_with(&ZSTD_MAGIC));
    let whole = BufReader::new(Cursor::new(head).chain(decoded));
    Ok(if gzip {
        ("gzip", Box::new(GzDecoder::new(whole)))
    } else if zstd {
        let frame = StreamingDecoder::new_with_max_window_size(whole, ZSTD_WINDOW)
            .map_err(|error| invalid("zstd", &error))?;
        ("zstd", Box::new(frame))
    } else {
        let stream = brotli_decompressor::Decompressor::new(whole, PIECE);
        ("brotli", Box::new(stream))
    })
}

/// A decoding error, by its cause: all decoders read through the base64 decoder.
fn invalid(format: &str, error: &(dyn Error + 'static)) -> Unread {
    let mut causes = std::iter::successors(Some(error), |error| cause(*error));
    let format = if causes.any(|cause| cause.is::<DecodeError>()) {
        "base64"
    } else {
        format
    };
    Unread::Otherwise(format!(
        "its compressed nodes are not valid {format}: {error}"
    ))
}

/// The cause of an error. An [`io::Error`] does not return its inner error as its source.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}
