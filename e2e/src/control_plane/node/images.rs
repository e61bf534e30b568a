//! The images of real nodes. There is no registry: they are written and imported.

use std::path::{Path, PathBuf};

use anyhow::Result;
use belayer_image::{Compression, Image, belayer, shipped_name};

use super::files::PAUSE_IMAGE;

/// The image of pods in scenarios: it waits for SIGTERM, and takes the commands `sleep`, `exit`, `ignore`, `write`,
/// `result` and `collector`.
pub const STEP_IMAGE: &str = "registry.invalid/step:1";

/// Writes archives of the images into `dir`. `pause` is the program of pods in scenarios.
pub fn write_images(dir: &Path, pause: &Path, binary: &Path) -> Result<Vec<PathBuf>> {
    let images = [
        ("pause", Image::of(PAUSE_IMAGE, pause)?),
        ("step", Image::of(STEP_IMAGE, pause)?),
        ("belayer", belayer(&shipped_name()?, binary)?),
    ];
    let mut archives = Vec::new();
    for (name, image) in images {
        let archive = dir.join(format!("image-{name}.tar"));
        image.write_archive(&archive, Compression::None)?;
        archives.push(archive);
    }
    Ok(archives)
}
