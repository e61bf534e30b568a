//! Writes container images without a container engine, as OCI layouts of one layer.
//!
//! The same files give the same bytes: entries are sorted, and all times are the Unix epoch.
//!
//! - [`Image`]: the content and configuration of an image
//! - [`belayer`]: Belayer's own image

mod libraries;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub use self::write::{Compression, Written};

/// The user of Belayer's image; the shipped manifests name it as well.
pub const USER: u32 = 65_532;

const LICENSE: &[u8] = include_bytes!("../../../LICENSE");
const DEPLOYMENT: &str = include_str!("../../../deploy/manifests/deployment.yaml");

/// An image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    entrypoint: Vec<String>,
    user: String,
    labels: BTreeMap<String, String>,
    /// By path without the leading slash.
    files: BTreeMap<String, File>,
}

#[derive(Debug, Clone)]
struct File {
    content: Content,
    mode: u32,
}

#[derive(Debug, Clone)]
enum Content {
    Bytes(Vec<u8>),
    Copy(PathBuf),
}

impl Image {
    /// An image with this program as its entry point, and the shared libraries that the program needs.
    ///
    /// `name` is a full reference with registry and tag.
    /// Fails when the name has no tag, or the program or its libraries cannot be read.
    pub fn of(name: &str, program: &Path) -> Result<Self> {
        Self::in_folder(name, "", program)
    }

    /// The same with the program in a folder, such as `bin/`.
    pub fn in_folder(name: &str, folder: &str, program: &Path) -> Result<Self> {
        ensure!(
            tag(name).is_some(),
            "the image name {name} has no tag (example: registry.example.com/belayer:0.1.0)"
        );
        let file_name = program
            .file_name()
            .and_then(|name| name.to_str())
            .context("the program has no file name")?;
        let mut image = Self {
            name: name.to_owned(),
            entrypoint: vec![format!("/{folder}{file_name}")],
            user: "0:0".to_owned(),
            labels: BTreeMap::new(),
            files: BTreeMap::new(),
        };
        image.copy(&format!("{folder}{file_name}"), program);
        for library in libraries::of(program)? {
            let inside = library.to_string_lossy().trim_start_matches('/').to_owned();
            image.copy(&inside, &library);
        }
        Ok(image)
    }

    fn copy(&mut self, inside: &str, from: &Path) {
        let content = Content::Copy(from.to_owned());
        self.files.insert(
            inside.to_owned(),
            File {
                content,
                mode: 0o755,
            },
        );
    }

    fn text(&mut self, inside: &str, bytes: &[u8]) {
        let content = Content::Bytes(bytes.to_owned());
        self.files.insert(
            inside.to_owned(),
            File {
                content,
                mode: 0o644,
            },
        );
    }

    fn label(&mut self, key: &str, value: &str) {
        let key = format!("org.opencontainers.image.{key}");
        self.labels.insert(key, value.to_owned());
    }

    /// The reference, with registry and tag.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Belayer's image with this binary: its user is not root, and there is neither a shell nor a package manager.
pub fn belayer(name: &str, binary: &Path) -> Result<Image> {
    let mut image = Image::of(name, binary)?;
    image.entrypoint = vec!["/belayer".to_owned()];
    image.user = format!("{USER}:{USER}");
    image.text("LICENSE", LICENSE);
    image.text(
        "etc/passwd",
        format!("belayer:x:{USER}:{USER}::/:/sbin/nologin\n").as_bytes(),
    );
    // Without it glibc asks DNS before it reads /etc/hosts.
    image.text("etc/nsswitch.conf", b"hosts: files dns\n");
    image.label("title", "Belayer");
    image.label(
        "description",
        "Delays the deletion of pods, workflows and PVCs until it is safe",
    );
    image.label("licenses", env!("CARGO_PKG_LICENSE"));
    image.label("source", env!("CARGO_PKG_REPOSITORY"));
    image.label("url", env!("CARGO_PKG_HOMEPAGE"));
    image.label("version", env!("CARGO_PKG_VERSION"));
    Ok(image)
}

/// The image that the shipped manifests refer to.
pub fn shipped_name() -> Result<String> {
    let mut lines = DEPLOYMENT.lines();
    let image = lines.find_map(|line| line.trim().strip_prefix("image: "));
    let image = image.context("deploy/manifests/deployment.yaml has no image")?;
    Ok(image.to_owned())
}

/// The tag of a reference.
fn tag(name: &str) -> Option<&str> {
    let last = name.rsplit('/').next()?;
    last.split_once(':').map(|(_, tag)| tag)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_refused() {
        let refused = Image::of("example.com:5000/belayer", Path::new("/bin/true")).unwrap_err();
        assert!(refused.to_string().contains("has no tag"), "{refused}");
    }

    #[test]
    fn the_shipped_name_is_fully_qualified() {
        let name = shipped_name().unwrap();
        assert!(name.split('/').next().unwrap().contains('.'), "{name}");
        assert!(tag(&name).is_some(), "{name}");
    }
}
