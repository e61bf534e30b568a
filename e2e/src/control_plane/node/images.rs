//! The images of real nodes. There is no registry: they are written and imported.

use std::path::{Path, PathBuf};

use anyhow::Result;
use belayer_image::{Compression, Image, belayer, shipped_name};

use super::super::program::Program;
use super::RealNodes;
use super::files::PAUSE_IMAGE;

/// The image of pods in scenarios: it waits for SIGTERM, and takes the commands `sleep`, `exit`, `ignore` and
/// `write`.
pub const STEP_IMAGE: &str = "registry.invalid/step:1";

/// Archives of the images.
pub(in super::super) struct Images(pub(in super::super) Vec<PathBuf>);

impl Images {
    /// Writes them into `dir`.
    pub(in super::super) fn write(dir: &Path, nodes: &RealNodes) -> Result<Self> {
        let pause = nodes.binaries.path(Program::Pause);
        let images = [
            ("pause", Image::of(PAUSE_IMAGE, &pause)?),
            ("step", Image::of(STEP_IMAGE, &pause)?),
            ("belayer", belayer(&shipped_name()?, &nodes.belayer)?),
        ];
        let mut archives = Vec::new();
        for (name, image) in images {
            let archive = dir.join(format!("image-{name}.tar"));
            image.write_archive(&archive, Compression::None)?;
            archives.push(archive);
        }
        Ok(Self(archives))
    }
}
