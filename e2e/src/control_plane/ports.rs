//! Free ports on the loopback address.

use std::net::{Ipv4Addr, TcpListener};

/// `N` different ports that were free a moment ago.
///
/// All are held at once while picking, so that none is handed out twice. Another process may still
/// take one before it is used: whoever starts a program on it must be ready to try again.
///
/// # Errors
/// When the system has no port left.
pub(crate) fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::free_ports;

    #[test]
    fn no_port_is_handed_out_twice() {
        let mut ports = free_ports::<64>().unwrap().to_vec();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 64);
    }
}
