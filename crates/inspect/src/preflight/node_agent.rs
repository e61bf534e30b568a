//! The node agent, if it is installed: its policy identifies an agent by the node in its token. API servers before
//! Kubernetes 1.32 do not add the node to tokens (rule T1).

use serde_json::Value;

use crate::reader::{Reader, explain};
use belayer_core::http::Request;

use super::report::{About, Finding};

/// The first version with the node in tokens.
const FIRST: (u32, u32) = (1, 32);

/// A finding if the agent does not work with a server of this version.
pub(crate) async fn check(reader: &Reader, server: Option<&str>) -> Option<Finding> {
    if server.and_then(version).is_some_and(|it| it >= FIRST) {
        return None;
    }
    let request = Request::get("/apis/apps/v1/daemonsets")
        .query("labelSelector", "app.kubernetes.io/name=belayer-node-agent");
    let list: Value = match reader.json(&request).await {
        Ok(list) => list,
        Err(error) => {
            return Some(Finding::unknown(
                About::Installation,
                "whether the node agent is installed",
                format!("daemonsets: {}", explain(&error)),
            ));
        }
    };
    let found = list["items"].as_array().and_then(|items| items.first())?;
    let text = |key: &str| found["metadata"][key].as_str().unwrap_or_default();
    let server = server.unwrap_or("of unknown version");
    Some(
        Finding::missing(
            About::Installation,
            format!(
                "daemonset {}/{} is the node agent, and this API server is {server}",
                text("namespace"),
                text("name")
            ),
            "before Kubernetes 1.32 a token does not contain its node: the agent's policy rejects all its writes, and \
             without that policy the agent of any node could write records of every node",
        )
        .fix("remove it (kubectl delete -k deploy/manifests/node-agent), or upgrade to Kubernetes 1.32"),
    )
}

/// Major and minor of a version such as `v1.31.4-eks-1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.trim_end_matches(|one: char| !one.is_ascii_digit());
    Some((major, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::before("v1.31.9", Some((1, 31)))]
    #[case::since("v1.32.0", Some((1, 32)))]
    #[case::of_a_vendor("v1.31.4-eks-1", Some((1, 31)))]
    #[case::with_a_plus("v1.31+", Some((1, 31)))]
    #[case::no_version("latest", None)]
    fn t1_versions_are_read(#[case] text: &str, #[case] expected: Option<(u32, u32)>) {
        assert_eq!(version(text), expected);
    }
}
