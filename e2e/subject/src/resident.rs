//! Resident memory of a process, from `/proc/PID/status`.

use std::fs;

use anyhow::{Context as _, Result};

/// The current resident memory, in bytes.
pub fn resident_of(pid: u32) -> Result<u64> {
    read(pid, "VmRSS:")
}

/// The peak resident memory, in bytes.
pub fn peak_resident_of(pid: u32) -> Result<u64> {
    read(pid, "VmHWM:")
}

/// From now on [`peak_resident_of`] is the peak after this call, for this process.
pub(crate) fn reset_peak() -> Result<()> {
    let file = "/proc/self/clear_refs";
    fs::write(file, "5").with_context(|| format!("write {file}"))
}

fn read(pid: u32, name: &str) -> Result<u64> {
    let file = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
    bytes_in(&status, name).with_context(|| format!("{file} has no {name}"))
}

fn bytes_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   12345 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(bytes_in(status, "VmHWM:"), Some(12345 * 1024));
        assert_eq!(bytes_in(status, "VmRSS:"), Some(1024));
        assert_eq!(bytes_in("Name:\tx\n", "VmHWM:"), None);
    }

    #[test]
    fn this_process_has_some() {
        let pid = std::process::id();
        assert!(peak_resident_of(pid).unwrap() > 1 << 20);
        assert!(resident_of(pid).is_ok());
    }
}
