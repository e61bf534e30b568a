//! Paths of requests. Names come from data, such as an owner reference that a tenant wrote. A name
//! must stay one segment of its path.
//!
//! Two measures ensure this: [`push`] escapes each segment when a path is built, and [`check`]
//! refuses a path with a segment that cannot be a name before a request is sent.
//!
//! ```
//! use belayer_core::object::path;
//!
//! let mut text = path::of_version("apps", "v1");
//! path::push(&mut text, "a name/with a slash");
//! assert!(text.ends_with("/a%20name%2Fwith%20a%20slash"), "{text}");
//! assert_eq!(path::resource("/apis/apps/v1/namespaces/shop/deployments/web"), Some(("apps", "deployments")));
//! ```

/// The longest name that a request may contain, in bytes. Kubernetes' kinds and custom resources
/// allow up to 253; no proxy refuses a path of this length.
pub const LONGEST_NAME: usize = 1024;

/// Whether an object can have this name.
///
/// The API server stores no object whose name client-go's `IsValidPathSegmentName` refuses.
///
/// [`push`] escapes what is none, as in the [example](self).
pub fn is_possible_name(name: &str) -> bool {
    let length = 1..=LONGEST_NAME;
    length.contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

/// The path of one version of a group; `group` is empty for the core group. The [module's
/// example](self) appends a name.
pub fn of_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        let mut path = String::from("/api");
        push(&mut path, version);
        return path;
    }
    let mut path = of_group(group);
    push(&mut path, version);
    path
}

/// The path of a group other than the core group. [`of_version`] has the version too, as in the
/// [example](self).
pub fn of_group(group: &str) -> String {
    let mut path = String::from("/apis");
    push(&mut path, group);
    path
}

/// The namespace in the path of a request: that of its object, or the namespace that is itself the
/// object. [`resource`] returns the kind, as in the [example](self).
pub fn namespace(path: &str) -> Option<&str> {
    let mut segments = path.strip_prefix('/')?.split('/');
    match segments.next()? {
        "api" => segments.next()?,
        "apis" => segments.nth(1)?,
        _ => return None,
    };
    segments.next().filter(|kind| *kind == "namespaces")?;
    segments.next().filter(|name| !name.is_empty())
}

/// The group and the plural in the path of a request for objects; the group is empty for the core
/// group. The [module's example](self) has one.
pub fn resource(path: &str) -> Option<(&str, &str)> {
    let mut segments = path.strip_prefix('/')?.split('/');
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    // The version.
    segments.next()?;
    let plural = segments.next()?;
    // In a namespace, or a namespace itself.
    let namespaced = (plural == "namespaces").then(|| segments.nth(1)).flatten();
    Some((group, namespaced.unwrap_or(plural)))
}

/// Appends one segment, escaped. The [module's example](self) appends a name with a slash.
pub fn push(path: &mut String, segment: &str) {
    path.push('/');
    if segment.bytes().all(is_plain) {
        return path.push_str(segment);
    }
    for byte in segment.bytes() {
        if is_plain(byte) {
            path.push(char::from(byte));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
            path.extend(['%', digit(byte >> 4), digit(byte)]);
        }
    }
}

/// The characters that RFC 3986 allows unescaped in a segment.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

/// Checks that each segment of a path is escaped and can be a name.
/// [`Request::send`](crate::http::Request::send) calls it; [`push`] escapes a segment, as in the
/// [example](self).
///
/// # Errors
///
/// The first invalid segment, as written in the path.
pub fn check(path: &str) -> Result<(), &str> {
    let mut segments = path.split('/');
    // The part before the first slash.
    if let Some(before) = segments.next().filter(|before| !before.is_empty()) {
        return Err(before);
    }
    for segment in segments {
        if segment.bytes().all(is_plain) {
            if segment.len() > LONGEST_NAME || matches!(segment, "" | "." | "..") {
                return Err(segment);
            }
        } else if !unescaped(segment).is_some_and(|name| is_possible_name(&name)) {
            return Err(segment);
        }
    }
    Ok(())
}

fn unescaped(segment: &str) -> Option<String> {
    let mut name = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        name.push(match byte {
            b'%' => u8::try_from(digit()? * 16 + digit()?).ok()?,
            byte if is_plain(byte) => byte,
            _ => return None,
        });
    }
    String::from_utf8(name).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::object::{ObjectKey, Resource};

    #[rstest]
    #[case::of_a_pod("web-0", true)]
    #[case::of_a_role("system:node:a b?#", true)]
    #[case::of_any_letters("\u{e9}", true)]
    #[case::empty("", false)]
    #[case::this_folder(".", false)]
    #[case::the_folder_above("..", false)]
    #[case::dots("...", true)]
    #[case::with_a_slash("w/x", false)]
    #[case::with_an_escape("w%2Fx", false)]
    #[case::of_the_longest(&"x".repeat(1024), true)]
    #[case::too_long_for_a_url(&"x".repeat(1025), false)]
    fn t7_names_that_an_object_can_have(#[case] name: &str, #[case] possible: bool) {
        assert_eq!(is_possible_name(name), possible);
        let path = Resource::pods().object_path(&ObjectKey::new("a", name));
        assert_eq!(check(&path).is_ok(), possible, "{path}");
    }

    #[rstest]
    #[case("web-0", "/api/v1/namespaces/a/pods/web-0")]
    #[case("w/x", "/api/v1/namespaces/a/pods/w%2Fx")]
    #[case("../secrets", "/api/v1/namespaces/a/pods/..%2Fsecrets")]
    #[case("w?watch=1#x", "/api/v1/namespaces/a/pods/w%3Fwatch=1%23x")]
    #[case("a b\n", "/api/v1/namespaces/a/pods/a%20b%0A")]
    #[case("\u{e9}", "/api/v1/namespaces/a/pods/%C3%A9")]
    #[case("%2F", "/api/v1/namespaces/a/pods/%252F")]
    fn t7_a_name_stays_one_segment_of_its_path(#[case] name: &str, #[case] path: &str) {
        assert_eq!(
            Resource::pods().object_path(&ObjectKey::new("a", name)),
            path
        );
    }

    #[rstest]
    #[case("/api/v1/namespaces/a/pods/web-0:8080/proxy/metrics", Ok(()))]
    #[case("/apis", Ok(()))]
    #[case("api", Err("api"))]
    #[case("/api/v1/pods/", Err(""))]
    #[case("/api//pods", Err(""))]
    #[case("/api/v1/pods/../secrets", Err(".."))]
    #[case("/api/v1/pods/a?b", Err("a?b"))]
    #[case("/api/v1/pods/a b", Err("a b"))]
    #[case("/api/v1/pods/%2e", Err("%2e"))]
    #[case("/api/v1/pods/a%2Fb", Err("a%2Fb"))]
    #[case("/api/v1/pods/a%", Err("a%"))]
    #[case("/api/v1/pods/a%ff", Err("a%ff"))]
    fn t7_paths_with_an_invalid_segment_are_refused(
        #[case] path: &str,
        #[case] expected: Result<(), &str>,
    ) {
        assert_eq!(check(path), expected);
    }

    #[rstest]
    #[case::of_a_namespace("/api/v1/namespaces/shop/pods/web-0", Some(("", "pods")))]
    #[case::its_status("/api/v1/namespaces/shop/pods/web-0/status", Some(("", "pods")))]
    #[case::a_collection("/apis/events.k8s.io/v1/namespaces/ci/events", Some(("events.k8s.io", "events")))]
    #[case::of_all_namespaces("/api/v1/pods", Some(("", "pods")))]
    #[case::cluster_scoped("/apis/batch/v1/things/a", Some(("batch", "things")))]
    #[case::a_namespace("/api/v1/namespaces/shop", Some(("", "namespaces")))]
    #[case::all("/api/v1/namespaces", Some(("", "namespaces")))]
    #[case::a_version("/api/v1", None)]
    #[case::no_object("/version", None)]
    fn l2_the_resource_of_a_path(#[case] path: &str, #[case] expected: Option<(&str, &str)>) {
        assert_eq!(resource(path), expected);
    }

    proptest! {
        /// Whatever an owner reference and a namespace contain: a request for the object names this object of this
        /// kind, or it is refused.
        #[test]
        fn fuzz_any_owner_reference_stays_in_its_place(
            group in "(|[a-z.]{1,12}|.{0,12})",
            plural in "([a-z]{1,12}|.{0,12})",
            namespace in proptest::option::of("([a-z]{1,6}|.{1,12}|[./%]{1,6})"),
            name in "([a-z-]{1,12}|.{0,16}|[./%2Ff]{0,12}|\\PC{0,12})",
        ) {
            let kind = Resource::new(group.as_str(), "v1", "K", plural.as_str());
            let key = match &namespace {
                Some(namespace) => ObjectKey::new(namespace.as_str(), name.as_str()),
                None => ObjectKey::cluster(name.as_str()),
            };
            let path = kind.object_path(&key);
            if check(&path).is_err() {
                return Ok(());
            }
            prop_assert!(is_possible_name(&name), "{path}");
            let segments: Vec<_> = path.split('/').skip(1).map(|one| unescaped(one).unwrap()).collect();
            let mut expected = match group.as_str() {
                "" => vec!["api", "v1"],
                group => vec!["apis", group, "v1"],
            };
            if let Some(namespace) = namespace.as_deref().filter(|name| !name.is_empty()) {
                expected.extend(["namespaces", namespace]);
            }
            expected.extend([plural.as_str(), name.as_str()]);
            prop_assert_eq!(segments, expected);
        }
    }

    #[test]
    fn t7_a_namespace_stays_one_segment_too() {
        let path = Resource::pods().path(Some("prod/pods/db-0"));
        assert_eq!(path, "/api/v1/namespaces/prod%2Fpods%2Fdb-0/pods");
        assert!(check(&path).is_err());
    }
}
