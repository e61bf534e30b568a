//! Free ports on the loopback address.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// First port of the search. Linux uses ports from 32768 on for outgoing connections, so a port below
/// cannot be taken by a connection before the program listens on it.
const FIRST: u32 = 15_000;
const COUNT: u32 = 32_768 - FIRST;

/// How many ports this process has tried. Other processes begin elsewhere: see [`offset`].
static LOOKED_AT: AtomicU32 = AtomicU32::new(0);

/// `N` different free ports.
///
/// A port is not returned again before all others. Another program may still take it before it is used,
/// so the caller has to retry the start of its program.
pub fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

fn free_port() -> io::Result<u16> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let offset = offset(LOOKED_AT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + offset).map_err(io::Error::other)?;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Processes with adjacent ids begin far from each other.
fn offset(looked_at: u32) -> u32 {
    let begin = std::process::id().wrapping_mul(7_919) % COUNT;
    (begin + looked_at % COUNT) % COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_nor_to_a_connection() {
        let mut ports = free_ports::<64>().unwrap().to_vec();
        ports.extend(free_ports::<64>().unwrap());
        assert!(ports.iter().all(|port| u32::from(*port) < FIRST + COUNT));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 128);
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let next = LOOKED_AT.load(Ordering::Relaxed);
        let taken: Vec<_> = (next..next + 200)
            .step_by(2)
            .filter_map(|n| {
                let port = FIRST + offset(n);
                TcpListener::bind((Ipv4Addr::LOCALHOST, port as u16)).ok()
            })
            .collect();
        let free = free_ports::<32>().unwrap();
        for listener in taken {
            let taken = listener.local_addr().unwrap().port();
            assert!(!free.contains(&taken), "{taken} is taken");
        }
    }
}
