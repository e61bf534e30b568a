//! The UID of a pod as a path component. The [crate's example](crate) parses one.

use std::fmt;
use std::sync::Arc;

/// Positions of the hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Length of a UID.
const LENGTH: usize = 36;

/// The UID of a pod, checked to be safe as a path component: 36 characters in the form that the
/// API server generates, lower-case hexadecimal digits and four hyphens. [`PodUid::parse`] is the
/// only constructor. The [crate's example](crate) parses one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(Arc<str>);

/// A text that is not a pod UID of the API server. The [crate's example](crate) parses one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the UID of a pod")]
pub struct BadUid(String);

impl PodUid {
    /// Checks a text.
    ///
    /// # Errors
    ///
    /// If it has any other form. Static pods have UIDs of another form: they are never wiped.
    pub fn parse(text: &str) -> Result<Self, BadUid> {
        let fits = |(at, byte): (usize, u8)| match byte {
            b'-' => HYPHENS.contains(&at),
            b'0'..=b'9' | b'a'..=b'f' => !HYPHENS.contains(&at),
            _ => false,
        };
        if text.len() == LENGTH && text.bytes().enumerate().all(fits) {
            return Ok(Self(text.into()));
        }
        Err(BadUid(text.chars().take(LENGTH * 2).collect()))
    }

    /// The text as the API server wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_uid_of_the_api_server_is_accepted() {
        let uid = "0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        assert_eq!(PodUid::parse(uid).unwrap().as_str(), uid);
    }

    #[rstest]
    #[case::empty("")]
    #[case::dot(".")]
    #[case::up("..")]
    #[case::a_path("../../../../../../../../../../../etc")]
    #[case::a_slash_in_the_middle("0b1a2c3d-4e5f-6071-8293/a4b5c6d7e8f9")]
    #[case::upper_case("0B1A2C3D-4E5F-6071-8293-A4B5C6D7E8F9")]
    #[case::too_short("0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f")]
    #[case::too_long("0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f90")]
    #[case::a_hyphen_elsewhere("0b1a2c3-d4e5f-6071-8293-a4b5c6d7e8f9")]
    #[case::no_hyphens("0b1a2c3d04e5f0607108293-a4b5c6d7e8f9")]
    #[case::a_static_pod("d41d8cd98f00b204e9800998ecf8427e")]
    #[case::not_ascii("0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8é")]
    #[case::a_nul("0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f\0")]
    fn anything_else_is_refused(#[case] text: &str) {
        assert!(PodUid::parse(text).is_err(), "{text}");
    }
}
