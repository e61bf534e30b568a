//! Packed nodes of a workflow, in the formats that Argo writes.

use std::io::{Read as _, Write as _};

use anyhow::{Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Map, Value};

/// Maximum size of a meta-block of brotli whose length has four nibbles.
const META_BLOCK: usize = 1 << 16;

/// How nodes are packed, before base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// The format of all versions.
    Gzip,
    /// From 4.1 on.
    Zstd,
    /// From 4.1 on.
    Brotli,
}

impl Packing {
    /// Packs nodes.
    pub fn pack(self, nodes: &Value) -> Result<String> {
        let text = nodes.to_string();
        let packed = match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text.as_bytes())?;
                encoder.finish()?
            }
            Self::Zstd => compress_to_vec(text.as_bytes(), CompressionLevel::Fastest),
            Self::Brotli => stored(text.as_bytes()),
        };
        Ok(STANDARD.encode(packed))
    }

    /// Unpacks what [`Packing::pack`] packed.
    pub(super) fn unpack(self, packed: &str) -> Result<Map<String, Value>> {
        let packed = STANDARD.decode(packed)?;
        let mut text = Vec::new();
        match self {
            Self::Gzip => GzDecoder::new(&*packed).read_to_end(&mut text)?,
            Self::Zstd => StreamingDecoder::new(&*packed)?.read_to_end(&mut text)?,
            Self::Brotli => {
                let mut stream = brotli_decompressor::Decompressor::new(&*packed, META_BLOCK);
                stream.read_to_end(&mut text)?
            }
        };
        match serde_json::from_slice(&text)? {
            Value::Object(nodes) => Ok(nodes),
            other => bail!("invalid nodes: {other}"),
        }
    }
}

/// A stream of brotli (RFC 7932) whose meta-blocks are not compressed.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (index, block) in bytes.chunks(META_BLOCK).enumerate() {
        // Not the last one; four nibbles of the length less one; not compressed; zeros up to the next byte.
        let mut header = ((block.len() - 1) << 3) | (1 << 19);
        if index == 0 {
            // One bit: a window of 64 KiB.
            header <<= 1;
        }
        stream.extend_from_slice(&header.to_le_bytes()[..3]);
        stream.extend_from_slice(block);
    }
    // The last meta-block, which is empty.
    stream.push(0b11);
    stream
}

/// Nodes of the largest table that fits into an object.
const NODES: usize = 480_000;

/// Packs a table of fulfilled nodes, as many as fit into an object. The first is `aaaa`.
pub fn largest_nodes() -> Result<String> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut table = Vec::new();
    for n in 0..NODES {
        table.push(if n == 0 { b'{' } else { b',' });
        table.push(b'"');
        for place in [36 * 36 * 36, 36 * 36, 36, 1] {
            table.push(LETTERS[n / place % 36]);
        }
        table.extend_from_slice(br#"":{"phase":"Failed"}"#);
    }
    table.push(b'}');
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&table)?;
    Ok(STANDARD.encode(encoder.finish()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    fn what_is_packed_is_unpacked(
        #[values(Packing::Gzip, Packing::Zstd, Packing::Brotli)] packing: Packing,
        #[values(1, 20, 3_000)] nodes: usize,
    ) {
        let nodes: Map<String, Value> = (0..nodes)
            .map(|index| {
                let node = json!({ "phase": "Succeeded", "name": format!("w.step-{index}") });
                (format!("w-{index}"), node)
            })
            .collect();
        let packed = packing.pack(&Value::Object(nodes.clone())).unwrap();
        assert_eq!(packing.unpack(&packed).unwrap(), nodes);
    }
}
