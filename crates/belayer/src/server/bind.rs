use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use super::Tls;

/// Listen address of an endpoint, in the syntax of Go programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindAddress {
    /// `0`: off.
    Off,
    /// `:8080`: all addresses of the machine.
    Every(u16),
    /// `127.0.0.1:8080`, `[::1]:8080`.
    One(SocketAddr),
}

/// An invalid listen address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid address {0:?} (example: :8080 or 127.0.0.1:8080; 0 for off)")]
pub struct ParseBindAddressError(String);

impl FromStr for BindAddress {
    type Err = ParseBindAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseBindAddressError(text.to_owned());
        if text == "0" {
            return Ok(Self::Off);
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        match host {
            "" => port.parse().map(Self::Every).map_err(|_| bad()),
            "localhost" => {
                let port = port.parse().map_err(|_| bad())?;
                Ok(Self::One((Ipv4Addr::LOCALHOST, port).into()))
            }
            _ => text.parse().map(Self::One).map_err(|_| bad()),
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Every(port) => write!(f, ":{port}"),
            Self::One(address) => address.fmt(f),
        }
    }
}

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}; {}", self.advice())]
pub struct BindError {
    address: BindAddress,
    flag: &'static str,
    reason: std::io::Error,
}

/// What to do if a process has too many open files.
pub(super) const RAISE_LIMIT: &str = "raise the limit of open files (ulimit -n)";

/// Whether this process has as many open files as its limit permits.
pub(super) fn has_too_many_files(error: &std::io::Error) -> bool {
    const EMFILE: i32 = 24;
    error.raw_os_error() == Some(EMFILE)
}

impl BindError {
    fn advice(&self) -> String {
        if has_too_many_files(&self.reason) {
            return RAISE_LIMIT.to_owned();
        }
        format!("choose another address with {}", self.flag)
    }
}

/// A bound address that is not served yet.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
}

impl Endpoint {
    /// Binds an address; `None` if it is off. `flag` is the flag that set it, for the error.
    ///
    /// # Errors
    /// If the address cannot be bound, for example because it is in use.
    pub async fn bind(
        address: &BindAddress,
        flag: &'static str,
    ) -> Result<Option<Self>, BindError> {
        let bound = match address {
            BindAddress::Off => return Ok(None),
            BindAddress::One(one) => TcpListener::bind(one).await,
            BindAddress::Every(port) => every(*port).await,
        };
        let failed = |reason| BindError {
            address: address.clone(),
            flag,
            reason,
        };
        let listener = bound.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!(%address, "listening for {}", flag.trim_start_matches('-'));
        Ok(Some(Self {
            listener,
            address,
            tls: None,
        }))
    }

    /// The address with its actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, served by TLS.
    #[must_use]
    pub fn with_tls(self, tls: &Tls) -> Self {
        Self {
            tls: Some(tls.config()),
            ..self
        }
    }

    pub(super) fn into_parts(self) -> (TcpListener, Option<watch::Receiver<Arc<ServerConfig>>>) {
        (self.listener, self.tls)
    }
}

/// Binds IPv6, which includes IPv4 if the machine has both.
async fn every(port: u16) -> std::io::Result<TcpListener> {
    let on = |ip: IpAddr| TcpListener::bind((ip, port));
    match on(Ipv6Addr::UNSPECIFIED.into()).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(error),
        Err(_) => on(Ipv4Addr::UNSPECIFIED.into()).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0", BindAddress::Off)]
    #[case(":8080", BindAddress::Every(8080))]
    #[case(":0", BindAddress::Every(0))]
    #[case("127.0.0.1:0", BindAddress::One(([127, 0, 0, 1], 0).into()))]
    #[case("[::1]:8081", BindAddress::One((Ipv6Addr::LOCALHOST, 8081).into()))]
    fn addresses_have_the_syntax_of_go(#[case] text: &str, #[case] address: BindAddress) {
        assert_eq!(text.parse(), Ok(address.clone()));
        assert_eq!(address.to_string(), text);
    }

    #[test]
    fn localhost_is_the_loopback() {
        assert_eq!(
            "localhost:1".parse::<BindAddress>().unwrap().to_string(),
            "127.0.0.1:1"
        );
    }

    #[rstest]
    #[case("")]
    #[case("8080")]
    #[case(":")]
    #[case(":+1")]
    #[case(":65536")]
    #[case("127.0.0.1")]
    #[case("::1:80x")]
    #[case("example:80")]
    #[case("http://127.0.0.1:80")]
    fn invalid_addresses_are_rejected(#[case] text: &str) {
        assert!(text.parse::<BindAddress>().is_err());
    }

    #[tokio::test]
    async fn an_address_in_use_names_the_flag() {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = Endpoint::bind(&any, "--metrics-bind-address")
            .await
            .unwrap()
            .unwrap();
        let taken = BindAddress::One(first.address());
        let error = Endpoint::bind(&taken, "--metrics-bind-address")
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("--metrics-bind-address") && text.contains("in use"),
            "{text}"
        );
    }

    #[test]
    fn too_many_open_files_are_not_a_matter_of_the_address() {
        let error = BindError {
            address: BindAddress::Every(80),
            flag: "--x",
            reason: rustix::io::Errno::MFILE.into(),
        };
        let text = error.to_string();
        assert!(text.ends_with("raise the limit of open files (ulimit -n)"));
        assert!(!text.contains("--x"), "{text}");
    }

    #[tokio::test]
    async fn every_address_includes_the_loopback() {
        let endpoint = Endpoint::bind(&BindAddress::Every(0), "--x")
            .await
            .unwrap()
            .unwrap();
        let port = endpoint.address().port();
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn off_binds_no_address() {
        assert!(
            Endpoint::bind(&BindAddress::Off, "--x")
                .await
                .unwrap()
                .is_none()
        );
    }
}
