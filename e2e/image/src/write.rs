//! The bytes of an image.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use flate2::{Compression as Level, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{Content, Image, tag};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// How the layer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As gzip, for a registry.
    Gzip,
    /// Not compressed, for images of tests: debug binaries are large.
    None,
}

/// A written image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The digest of the manifest, by which registries name the image.
    pub digest: String,
    /// The sum of the sizes of all blobs, in bytes.
    pub bytes: u64,
}

/// Path and content of each file of a layout.
type Files = Vec<(String, Vec<u8>)>;

struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self { digest, bytes }
    }

    fn json(value: &Value) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(value)?))
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.bytes.len() })
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

impl Image {
    /// Writes the image as an OCI layout, a folder. Blobs of an earlier image stay.
    pub fn write_layout(&self, folder: &Path, compression: Compression) -> Result<Written> {
        let (files, written) = self.layout(compression)?;
        for (path, bytes) in files {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(written)
    }

    /// Writes the image as one file: an OCI layout in a tar archive, which `ctr images import` and
    /// `kind load image-archive` read.
    pub fn write_archive(&self, file: &Path, compression: Compression) -> Result<Written> {
        let (files, written) = self.layout(compression)?;
        let out = fs::File::create(file).with_context(|| format!("write {}", file.display()))?;
        let mut archive = tar::Builder::new(io::BufWriter::new(out));
        for (path, bytes) in files {
            append(&mut archive, &path, &bytes, 0o644)?;
        }
        archive.into_inner()?.flush()?;
        Ok(written)
    }

    fn layout(&self, compression: Compression) -> Result<(Files, Written)> {
        let plain = self.layer()?;
        let plain_digest = digest(&plain);
        let (layer, layer_type) = match compression {
            Compression::Gzip => (Blob::new(zipped(&plain)?), format!("{LAYER}+gzip")),
            Compression::None => (Blob::new(plain), LAYER.to_owned()),
        };
        let config = Blob::json(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": self.user,
                "Entrypoint": self.entrypoint,
                "WorkingDir": "/",
                "Labels": self.labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [plain_digest] },
        }))?;
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(CONFIG),
            "layers": [layer.descriptor(&layer_type)],
            "annotations": self.labels,
        }))?;
        let mut entry = manifest.descriptor(MANIFEST);
        entry["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        entry["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag(&self.name),
        });
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });

        let blobs = [&layer, &config, &manifest];
        let written = Written {
            digest: manifest.digest.clone(),
            bytes: blobs.iter().map(|blob| blob.bytes.len() as u64).sum(),
        };
        let mut files = vec![
            (
                "oci-layout".to_owned(),
                serde_json::to_vec(&json!({ "imageLayoutVersion": "1.0.0" }))?,
            ),
            ("index.json".to_owned(), serde_json::to_vec(&index)?),
        ];
        for blob in [manifest, config, layer] {
            files.push((blob.path(), blob.bytes));
        }
        Ok((files, written))
    }

    /// The layer as a tar archive: folders first, then files, each sorted.
    fn layer(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for folder in self.folders() {
            let mut header = header(0, 0o755);
            header.set_entry_type(tar::EntryType::Directory);
            archive.append_data(&mut header, format!("{folder}/"), io::empty())?;
        }
        for (path, file) in &self.files {
            match &file.content {
                Content::Bytes(bytes) => append(&mut archive, path, bytes, file.mode)?,
                Content::Copy(from) => {
                    let bytes =
                        fs::read(from).with_context(|| format!("read {}", from.display()))?;
                    append(&mut archive, path, &bytes, file.mode)?;
                }
            }
        }
        Ok(archive.into_inner()?)
    }

    fn folders(&self) -> BTreeSet<String> {
        let paths = self.files.keys().map(Path::new);
        let parents = paths.flat_map(|path| path.ancestors().skip(1));
        parents
            .map(|folder| folder.to_string_lossy().into_owned())
            .filter(|folder| !folder.is_empty())
            .collect()
    }
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    path: &str,
    bytes: &[u8],
    mode: u32,
) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len() as u64, mode), path, bytes)
}

/// A header without owner and time, so that the same content gives the same bytes.
fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn zipped(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut zip = GzBuilder::new().mtime(0).write(Vec::new(), Level::best());
    zip.write_all(bytes)?;
    zip.finish()
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The name of this machine's architecture in Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn image(folder: &Path) -> Image {
        let program = folder.join("belayer");
        fs::copy("/bin/true", &program).unwrap();
        crate::belayer("registry.invalid/belayer:1", &program).unwrap()
    }

    #[test]
    fn the_same_files_give_the_same_image() {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path());
        for compression in [Compression::Gzip, Compression::None] {
            let one = image
                .write_archive(&dir.path().join("1"), compression)
                .unwrap();
            let two = image
                .write_archive(&dir.path().join("2"), compression)
                .unwrap();
            assert_eq!(one, two);
            assert_eq!(
                fs::read(dir.path().join("1")).unwrap(),
                fs::read(dir.path().join("2")).unwrap()
            );
        }
    }

    #[test]
    fn every_blob_of_a_layout_is_named_by_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let layout = dir.path().join("layout");
        let written = image(dir.path())
            .write_layout(&layout, Compression::Gzip)
            .unwrap();
        let blobs = layout.join("blobs/sha256");
        let names: Vec<_> = fs::read_dir(&blobs)
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        assert_eq!(names.len(), 3);
        for blob in names {
            let name = blob.file_name().into_string().unwrap();
            assert_eq!(
                digest(&fs::read(blob.path()).unwrap()),
                format!("sha256:{name}")
            );
        }
        let index: Value =
            serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
        assert_eq!(index["manifests"][0]["digest"], written.digest);
    }

    #[test]
    fn the_image_has_a_user_and_no_shell() {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path());
        assert_eq!(image.user, "65532:65532");
        assert!(image.files.contains_key("LICENSE"));
        let programs = ["bin/sh", "bin/bash", "usr/bin/sh"];
        assert!(programs.iter().all(|path| !image.files.contains_key(*path)));
        assert!(image.files.keys().any(|path| path.contains("libc.so")));
    }

    /// Resolution by /etc/hosts and DNS itself is shown by the scenario real-traces.
    #[test]
    fn names_are_looked_up_in_the_hosts_file_and_by_dns() {
        let dir = tempfile::tempdir().unwrap();
        let switch = &image(dir.path()).files["etc/nsswitch.conf"].content;
        assert!(matches!(switch, Content::Bytes(text) if text == b"hosts: files dns\n"));
    }
}
