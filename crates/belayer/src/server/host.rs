use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};

/// `routes`, served at the address `bound`, without requests that name another host: a page of another site must not
/// read them by a name that it resolves to this address (DNS rebinding).
pub(crate) fn only_this_host(routes: Router, bound: SocketAddr) -> Router {
    routes.layer(from_fn_with_state(bound, check))
}

async fn check(State(bound): State<SocketAddr>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    if host.is_some_and(|host| is_this_host(host, bound.ip())) {
        return next.run(request).await;
    }
    let text = "the Host header must be the address of this endpoint or localhost\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

fn is_this_host(host: &HeaderValue, bound: IpAddr) -> bool {
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse().ok()) else {
        return false;
    };
    let authority: http::uri::Authority = authority;
    let name = authority.host().trim_matches(['[', ']']);
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address: Option<IpAddr> = name.parse().ok();
    // An endpoint at all addresses has each of them, and DNS rebinding needs a name.
    address.is_some_and(|ip| ip.is_loopback() || ip == bound || bound.is_unspecified())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("localhost", true)]
    #[case("LOCALHOST:8082", true)]
    #[case("127.0.0.1:8082", true)]
    #[case("127.1.2.3", true)]
    #[case("[::1]:8082", true)]
    #[case("10.0.0.7:8082", true)]
    #[case("10.0.0.8:8082", false)]
    #[case("localhost.example.com", false)]
    #[case("127.0.0.1.example.com:8082", false)]
    #[case("rebound.example.com:8082", false)]
    #[case("", false)]
    fn only_the_address_itself_is_a_host(#[case] host: &'static str, #[case] accepted: bool) {
        let bound = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(
            is_this_host(&HeaderValue::from_static(host), bound),
            accepted
        );
    }

    #[rstest]
    #[case("10.0.0.8:8082", true)]
    #[case("localhost:8082", true)]
    #[case("rebound.example.com:8082", false)]
    fn all_addresses_are_hosts_of_an_endpoint_at_all(
        #[case] host: &'static str,
        #[case] accepted: bool,
    ) {
        let host = HeaderValue::from_static(host);
        assert_eq!(is_this_host(&host, IpAddr::from([0, 0, 0, 0])), accepted);
    }
}
