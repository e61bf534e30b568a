//! Events.

use serde_json::Value;

use crate::error::Cause;
use crate::meta;

/// The longest name of an event's reporter, action and reason, and the longest message.
const LONGEST: usize = 128;
const LONGEST_MESSAGE: usize = 1024;

/// All errors in a new event; `reporter` is the name of the reporting controller in errors.
pub(crate) fn check(event: &Value, reporter: &str) -> Vec<Cause> {
    let about = meta::text(event, &["involvedObject", "namespace"]);
    let home = meta::field(event, "namespace");
    let mut causes = Vec::new();
    let new = !meta::text(event, &["eventTime"]).is_empty();
    // Events about cluster-scoped objects are stored in the default namespace.
    let fits = match (new, about) {
        (true, "") => matches!(home, "default" | "kube-system"),
        (true, _) => true,
        (false, "") => home == "default",
        (false, about) => about == home,
    };
    if !fits {
        causes.push(Cause::invalid(
            "involvedObject.namespace",
            &format!("{about:?}"),
            "does not match event.namespace",
        ));
    }
    if new {
        check_new(event, reporter, &mut causes);
    }
    causes
}

/// An event with a time of its own has more required fields.
fn check_new(event: &Value, reporter: &str, causes: &mut Vec<Cause>) {
    if meta::text(event, &["reportingComponent"]).is_empty() {
        causes.push(Cause::required(reporter, ""));
        let why = "name part must be non-empty";
        causes.push(Cause::invalid(reporter, "\"\"", why));
        let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        causes.push(Cause::invalid(reporter, "\"\"", why));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let text = meta::text(event, &[field]);
        if text.is_empty() {
            causes.push(Cause::required(field, ""));
        }
        if text.len() > LONGEST {
            let why = format!("can have at most {LONGEST} characters");
            causes.push(Cause::invalid(field, "\"\"", &why));
        }
    }
    if meta::text(event, &["message"]).len() > LONGEST_MESSAGE {
        let why = format!("can have at most {LONGEST_MESSAGE} characters");
        causes.push(Cause::invalid("message", "\"\"", &why));
    }
}
