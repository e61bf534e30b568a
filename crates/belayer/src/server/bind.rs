use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::TcpListener;

/// Where an endpoint listens, as Go programs write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindAddress {
    /// `0`: nowhere.
    Off,
    /// `:8080`: on every address of the machine.
    Every(u16),
    /// `127.0.0.1:8080`, `[::1]:8080`.
    One(SocketAddr),
}

/// A text that is no address to listen on.
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

/// An address that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}; {flag} names another address")]
pub struct BindError {
    address: BindAddress,
    flag: &'static str,
    reason: std::io::Error,
}

/// An address that is listened on already, but not served yet.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Starts to listen; `None` if the address is off. `flag` is where the address comes from,
    /// for the error.
    ///
    /// # Errors
    /// If the address cannot be had: something else listens there, for example.
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
        tracing::info!(%address, "{} is served", flag.trim_start_matches('-'));
        Ok(Some(Self { listener, address }))
    }

    /// The address, with the port that was found if any would do.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn into_listener(self) -> TcpListener {
        self.listener
    }
}

/// IPv6 takes IPv4 along where the machine has it.
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
    fn addresses_are_read_as_go_writes_them(#[case] text: &str, #[case] address: BindAddress) {
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
    fn anything_else_is_refused(#[case] text: &str) {
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
    async fn off_listens_nowhere() {
        assert!(
            Endpoint::bind(&BindAddress::Off, "--x")
                .await
                .unwrap()
                .is_none()
        );
    }
}
