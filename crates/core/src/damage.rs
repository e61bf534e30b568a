//! Damaged input for property tests of decoders and parsers: what a fuzzer makes of valid input.
//!
//! ```
//! use belayer_core::damage::damaged;
//!
//! assert_eq!(damaged(b"abc", &[]), b"abc");
//! ```

/// One change: what is done, where, and with which byte. The input of [`damaged`]. The
/// [example](self) has none.
pub type Edit = (u8, u32, u8);

/// Applies `edits` to `bytes`: replaces, inserts, repeats and removes bytes, and cuts the end off.
/// Without edits the [bytes are unchanged](crate::damage).
#[must_use]
pub fn damaged(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for &(what, place, byte) in edits {
        if bytes.is_empty() {
            bytes.push(byte);
            continue;
        }
        let at = place as usize % bytes.len();
        let end = (at + usize::from(byte)).min(bytes.len());
        match what % 6 {
            0 | 1 => bytes[at] = byte,
            2 => bytes.insert(at, byte),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.extend(piece);
            }
            4 => drop(bytes.drain(at..end)),
            _ => bytes.truncate(at),
        }
    }
    bytes
}
