//! Whether a kind is served in the version that Belayer reads.

use serde::Deserialize;

use crate::reader::{Reader, explain};
use belayer_core::http::{ErrorClass, Request};
use belayer_core::object::path;

use super::needs::Kind;
use super::report::{About, Finding, Level};

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Served>,
}

#[derive(Deserialize)]
struct Served {
    name: String,
}

/// A finding, unless the kind is served.
pub(crate) async fn check(reader: &Reader, kind: &Kind) -> Option<Finding> {
    let resource = &kind.resource;
    let path = path::of_version(&resource.group, &resource.version);
    let what = format!("{resource} in version {}", resource.version);
    let served = match reader.json::<Resources>(&Request::get(path)).await {
        Ok(version) => version
            .resources
            .iter()
            .any(|served| served.name == *resource.plural),
        Err(error) if matches!(error.class(), ErrorClass::NotServed | ErrorClass::NotFound) => {
            false
        }
        Err(error) => {
            return Some(Finding::unknown(
                About::Kind,
                what,
                format!("whether it is served: {}", explain(&error)),
            ));
        }
    };
    if served {
        return None;
    }
    let level = if kind.optional {
        Level::Note
    } else {
        Level::Missing
    };
    let finding = Finding::new(
        level,
        About::Kind,
        format!("{what} is not served"),
        kind.without,
    );
    Some(if kind.fix.is_empty() {
        finding
    } else {
        finding.fix(kind.fix)
    })
}
