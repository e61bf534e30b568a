//! Whether the disk has room for a run. A full disk shows as compiler and etcd errors that do not name it.

use std::process::Command;

use crate::cargo::root;

/// In GiB. A run in a new clone left 6.8 GiB without debug information, and wrote temporary files as well. With 4.5 GiB free
/// it failed.
const NEEDED: f64 = 10.0;
/// Less than this at the end of a failed run is the likely cause of its failures, in GiB.
const FULL: f64 = 1.0;

/// Warns before the first step.
pub(super) fn warn_before() {
    if let Some(free) = free().filter(|free| *free < NEEDED) {
        println!(
            "warning: {free:.1} GiB of disk space are free; a run in a new clone needs up to {NEEDED:.0} GiB"
        );
    }
}

/// Names the cause after the last step of a failed run.
pub(super) fn explain_failure() {
    if let Some(free) = free().filter(|free| *free < FULL) {
        println!(
            "the disk is full ({free:.1} GiB free): free disk space and run the command again"
        );
    }
}

fn free() -> Option<f64> {
    let output = Command::new("df").arg("-Pk").arg(root()).output().ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// The free space in GiB of the only line of `df -Pk`, whose format POSIX defines.
fn parse(output: &str) -> Option<f64> {
    let kib: f64 = output
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()?;
    Some(kib / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_space_is_the_fourth_column() {
        let output = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 263174212 51380224 46137344 53% /\n";
        assert_eq!(parse(output), Some(44.0));
        assert_eq!(parse("Filesystem 1024-blocks\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_disk_has_a_free_space() {
        assert!(free().unwrap() > 0.0);
    }
}
