//! What a machine that lost power, or a container that was stopped, leaves of real nodes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cgroups::{cgroups_left, remove_cgroup};
use super::lock;
use crate::progress::Progress;

/// The prefix of the folder of a control plane, in the folder for temporary files.
pub const FOLDER: &str = "belayer-control-plane-";

/// Removes what is left of real nodes whose processes, and the one that cleans up after them, were ended at once.
/// Waits until no cluster with real nodes runs.
pub fn remove_leftovers() -> Result<()> {
    // Whoever has it, and no other process, may have real nodes.
    let _lock = lock()?;
    for folder in folders_left(&std::env::temp_dir())? {
        Progress::say(&format!(
            "removing {}, of a run that was cut off",
            folder.display()
        ));
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    for group in cgroups_left()? {
        Progress::say(&format!(
            "removing {}, of a run that was cut off",
            group.display()
        ));
        remove_cgroup(&group)?;
    }
    Ok(())
}

/// Folders of real nodes below `dir`, the folder for temporary files. Logs of failed starts are kept without these.
pub fn folders_left(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let nodes = entry.path().join("nodes");
        if entry.file_name().to_string_lossy().starts_with(FOLDER) && nodes.exists() {
            left.push(nodes);
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_nodes_are_left_behind() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let nodes = dir.path().join("belayer-control-plane-a/nodes");
        for folder in [
            nodes.as_path(),
            &dir.path().join("belayer-control-plane-b/etcd"),
            &dir.path().join("other/nodes"),
        ] {
            fs::create_dir_all(folder)?;
        }
        assert_eq!(folders_left(dir.path())?, [nodes]);
        Ok(())
    }
}
