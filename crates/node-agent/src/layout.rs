//! The directories that belong to a pod: the configured path templates. A pod cannot add any. The
//! [crate's example](crate) has one root and one directory.

use std::path::{Path, PathBuf};

use crate::uid::PodUid;

/// Placeholder for the UID of a pod.
pub const POD_UID: &str = "{podUID}";

/// Longest path that Linux accepts, in bytes.
const PATH_LIMIT: usize = 4_095;

/// Longest component of a path, in bytes.
const NAME_LIMIT: usize = 255;

/// The roots, and the templates of a pod's directories below them. The [crate's example](crate)
/// has one root and one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    roots: Vec<PathBuf>,
    templates: Vec<Template>,
}

/// One path template, split at its root.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template {
    /// Index of its root.
    root: usize,
    /// Components below the root.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    PodUid,
}

/// A directory of one pod. It may not exist. The [crate's example](crate) has one root and one
/// directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The root that everything is confined to.
    pub root: PathBuf,
    /// Path of its parent directory, relative to the root; empty if the parent is the root.
    pub parent: PathBuf,
    /// Its name in the parent.
    pub name: String,
}

impl Place {
    /// The whole path.
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.parent).join(&self.name)
    }
}

/// An invalid root or template in the configuration. The [crate's example](crate) has one root and
/// one directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The configuration has no root.
    #[error("no root is given: nothing may be removed anywhere")]
    NoRoot,
    /// A path is not absolute.
    #[error("{0:?} is not an absolute path")]
    NotAbsolute(String),
    /// `/` as a root would allow everything to be removed.
    #[error("\"/\" cannot be a root: give the directory that contains the pods' directories")]
    Everything,
    /// A root contains a placeholder.
    #[error("the root {0:?} contains a brace: placeholders are allowed in paths only")]
    PlaceholderInRoot(String),
    /// A path contains a forbidden component.
    #[error("{path:?}: {component:?} is not allowed as a path component")]
    Component {
        /// The path.
        path: String,
        /// The component: empty, `.`, `..`, too long, or with a control character.
        component: String,
    },
    /// A path is too long for Linux.
    #[error("{0:?} is longer than 4095 bytes")]
    TooLong(String),
    /// A path is below no root.
    #[error("the path {path:?} is not below a root (roots: {roots})")]
    OutsideRoots {
        /// The path.
        path: String,
        /// The roots.
        roots: String,
    },
    /// A path is the same for all pods.
    #[error(
        "the path {0:?} does not contain {{podUID}}: it would be the same directory for every pod"
    )]
    NoPodUid(String),
    /// The placeholder is part of a component, repeated, or unknown.
    #[error(
        "the path {path:?}: {component:?} is not allowed: use {{podUID}} once, as a whole component, and no other \
         placeholder"
    )]
    Placeholder {
        /// The path.
        path: String,
        /// The component.
        component: String,
    },
}

impl LayoutError {
    /// Whether the error is about the roots; otherwise it is about the templates.
    pub fn is_about_roots(&self) -> bool {
        match self {
            Self::NoRoot | Self::Everything | Self::PlaceholderInRoot(_) => true,
            Self::NotAbsolute(path) | Self::TooLong(path) => !path.contains('{'),
            Self::Component { path, .. } => !path.contains('{'),
            Self::OutsideRoots { .. } | Self::NoPodUid(_) | Self::Placeholder { .. } => false,
        }
    }
}

impl Layout {
    /// Checks roots and templates. Without templates, a pod's directory is `{podUID}` in each root.
    ///
    /// # Errors
    ///
    /// If one of them could name anything but a directory of a single pod below a root.
    pub fn new<R, T>(
        roots: impl IntoIterator<Item = R>,
        templates: impl IntoIterator<Item = T>,
    ) -> Result<Self, LayoutError>
    where
        R: AsRef<str>,
        T: AsRef<str>,
    {
        let mut layout = Self {
            roots: Vec::new(),
            templates: Vec::new(),
        };
        for text in roots {
            let root = root(text.as_ref())?;
            if !layout.roots.contains(&root) {
                layout.roots.push(root);
            }
        }
        if layout.roots.is_empty() {
            return Err(LayoutError::NoRoot);
        }
        for text in templates {
            let template = layout.template(text.as_ref())?;
            if !layout.templates.contains(&template) {
                layout.templates.push(template);
            }
        }
        if layout.templates.is_empty() {
            let below = |root| Template {
                root,
                parts: vec![Part::PodUid],
            };
            layout.templates = (0..layout.roots.len()).map(below).collect();
        }
        Ok(layout)
    }

    /// The roots.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().map(PathBuf::as_path)
    }

    /// The directories of a pod.
    pub fn places(&self, uid: &PodUid) -> impl Iterator<Item = Place> {
        self.templates.iter().map(move |template| {
            let mut names: Vec<&str> = template
                .parts
                .iter()
                .map(|part| match part {
                    Part::Literal(name) => name.as_str(),
                    Part::PodUid => uid.as_str(),
                })
                .collect();
            let name = names.pop().unwrap_or_else(|| uid.as_str()).to_owned();
            Place {
                root: self.roots[template.root].clone(),
                parent: names.iter().collect(),
                name,
            }
        })
    }

    fn template(&self, text: &str) -> Result<Template, LayoutError> {
        let path = checked(text)?;
        // The longest matching root, independent of their order.
        let fitting = (0..self.roots.len()).filter(|index| path.starts_with(&self.roots[*index]));
        let longest = fitting.max_by_key(|index| self.roots[*index].components().count());
        let Some(root) = longest else {
            let all: Vec<String> = self.roots.iter().map(|r| r.display().to_string()).collect();
            return Err(LayoutError::OutsideRoots {
                path: text.to_owned(),
                roots: all.join(", "),
            });
        };
        let below = path.strip_prefix(&self.roots[root]).unwrap_or(&path);
        let mut parts = Vec::new();
        for component in below.components() {
            let component = component.as_os_str().to_string_lossy();
            let seen = parts.contains(&Part::PodUid);
            parts.push(match &*component {
                POD_UID if !seen => Part::PodUid,
                name if name == POD_UID || name.contains(['{', '}']) => {
                    return Err(LayoutError::Placeholder {
                        path: text.to_owned(),
                        component: name.to_owned(),
                    });
                }
                name => Part::Literal(name.to_owned()),
            });
        }
        if !parts.contains(&Part::PodUid) {
            return Err(LayoutError::NoPodUid(text.to_owned()));
        }
        Ok(Template { root, parts })
    }
}

fn root(text: &str) -> Result<PathBuf, LayoutError> {
    if text == "/" {
        return Err(LayoutError::Everything);
    }
    if text.contains(['{', '}']) {
        return Err(LayoutError::PlaceholderInRoot(text.to_owned()));
    }
    checked(text)
}

/// Checks an absolute path without `.`, `..` and empty components. One slash may follow.
fn checked(text: &str) -> Result<PathBuf, LayoutError> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(LayoutError::NotAbsolute(text.to_owned()));
    };
    if text.len() > PATH_LIMIT {
        return Err(LayoutError::TooLong(text.to_owned()));
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for component in rest.split('/') {
        let bad = component.is_empty()
            || component == "."
            || component == ".."
            || component.len() > NAME_LIMIT
            || component.chars().any(char::is_control);
        if bad {
            return Err(LayoutError::Component {
                path: text.to_owned(),
                component: component.to_owned(),
            });
        }
    }
    Ok(Path::new("/").join(rest))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const UID: &str = "0b1a2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

    fn places(roots: &[&str], templates: &[&str]) -> Vec<String> {
        let layout = Layout::new(roots, templates).unwrap();
        let uid = PodUid::parse(UID).unwrap();
        layout
            .places(&uid)
            .map(|place| place.path().display().to_string())
            .collect()
    }

    #[rstest]
    #[case::a_root_alone(&["/ws"], &[], &["/ws/U"])]
    #[case::two_roots(&["/ws", "/cache"], &[], &["/ws/U", "/cache/U"])]
    #[case::a_path(&["/ws"], &["/ws/{podUID}"], &["/ws/U"])]
    #[case::a_slash_at_the_end(&["/ws/", "/ws"], &["/ws/{podUID}/"], &["/ws/U"])]
    #[case::deeper(&["/var/lib"], &["/var/lib/ws/{podUID}/scratch"], &["/var/lib/ws/U/scratch"])]
    #[case::twice_the_same(&["/ws", "/ws"], &["/ws/{podUID}", "/ws/{podUID}"], &["/ws/U"])]
    fn a_pods_directories_follow_from_its_uid_alone(
        #[case] roots: &[&str],
        #[case] templates: &[&str],
        #[case] expected: &[&str],
    ) {
        let expected: Vec<String> = expected.iter().map(|p| p.replace('U', UID)).collect();
        assert_eq!(places(roots, templates), expected);
    }

    #[test]
    fn the_longest_root_confines() {
        for roots in [["/var", "/var/lib/ws"], ["/var/lib/ws", "/var"]] {
            let layout = Layout::new(roots, ["/var/lib/ws/{podUID}"]).unwrap();
            let place = layout.places(&PodUid::parse(UID).unwrap()).next().unwrap();
            assert_eq!(place.root, Path::new("/var/lib/ws"));
            assert_eq!(place.parent, Path::new(""));
        }
    }

    #[rstest]
    #[case::no_root(&[], &[], "no root is given")]
    #[case::everything(&["/"], &[], "cannot be a root")]
    #[case::a_relative_root(&["ws"], &[], "not an absolute path")]
    #[case::an_empty_root(&[""], &[], "not an absolute path")]
    #[case::a_root_with_a_placeholder(&["/ws/{podUID}"], &[], "placeholders are allowed in paths only")]
    #[case::a_root_that_goes_up(&["/ws/.."], &[], "\"..\" is not allowed")]
    #[case::two_slashes_at_the_end(&["/ws//"], &[], "\"\" is not allowed")]
    #[case::two_slashes(&["//"], &[], "\"\" is not allowed")]
    #[case::a_relative_path(&["/ws"], &["ws/{podUID}"], "not an absolute path")]
    #[case::a_path_elsewhere(&["/ws"], &["/wss/{podUID}"], "not below a root (roots: /ws)")]
    #[case::the_same_for_all(&["/ws"], &["/ws/all"], "does not contain {podUID}")]
    #[case::the_root_itself(&["/ws"], &["/ws"], "does not contain {podUID}")]
    #[case::a_part_of_a_component(&["/ws"], &["/ws/pod-{podUID}"], "\"pod-{podUID}\" is not allowed")]
    #[case::another_placeholder(&["/ws"], &["/ws/{podName}/{podUID}"], "\"{podName}\" is not allowed")]
    #[case::twice(&["/ws"], &["/ws/{podUID}/{podUID}"], "once, as a whole component")]
    #[case::up(&["/ws"], &["/ws/{podUID}/../x"], "\"..\" is not allowed")]
    #[case::a_dot(&["/ws"], &["/ws/./{podUID}"], "\".\" is not allowed")]
    #[case::a_double_slash(&["/ws"], &["/ws//{podUID}"], "\"\" is not allowed")]
    #[case::a_new_line(&["/ws"], &["/ws/a\nb/{podUID}"], "is not allowed")]
    fn paths_outside_a_pods_directory_are_rejected(
        #[case] roots: &[&str],
        #[case] templates: &[&str],
        #[case] says: &str,
    ) {
        let error = Layout::new(roots, templates).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn overlong_names_and_paths_are_rejected() {
        let long = format!("/{}", "x".repeat(256));
        assert!(matches!(
            Layout::new([&long], [""; 0]),
            Err(LayoutError::Component { .. })
        ));
        let deep = "/ab".repeat(2_000);
        assert!(matches!(
            Layout::new([&deep], [""; 0]),
            Err(LayoutError::TooLong(_))
        ));
    }
}
