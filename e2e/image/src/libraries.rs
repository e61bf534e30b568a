//! The shared libraries of a program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The files that the program's loader reads, the loader included; none for a static program.
pub(crate) fn of(program: &Path) -> Result<Vec<PathBuf>> {
    ensure!(program.is_file(), "{} not found", program.display());
    let output = Command::new("ldd")
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .context(
            "start ldd, which is part of the C library's programs (Debian package libc-bin)",
        )?;
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if error.contains("not a dynamic executable") || out.contains("statically linked") {
        return Ok(Vec::new());
    }
    ensure!(
        output.status.success(),
        "ldd {}: {}",
        program.display(),
        error.trim()
    );
    out.lines()
        .filter_map(|line| file(line).transpose())
        .collect()
}

/// The file of one line; `None` for the library that is part of the kernel.
fn file(line: &str) -> Result<Option<PathBuf>> {
    let (name, found) = line.trim().split_once(" => ").unwrap_or(("", line.trim()));
    ensure!(found != "not found", "the library {name} is not installed");
    let path = found.split(" (0x").next().unwrap_or(found);
    Ok(path.starts_with('/').then(|| PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_output_of_ldd_is_read() {
        let read = |line| file(line).unwrap();
        let path = |text| Some(PathBuf::from(text));
        assert_eq!(
            read("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)"),
            path("/lib/x86_64-linux-gnu/libc.so.6")
        );
        assert_eq!(
            read("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)"),
            path("/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(read("\tlinux-vdso.so.1 (0x00007f)"), None);
        assert!(file("\tlibx.so.1 => not found").is_err());
    }
}
