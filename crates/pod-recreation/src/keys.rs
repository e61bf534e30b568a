//! Every key below `podRecreation` of the configuration file.

use belayer_controller::config::Key;

/// In the order of the documentation.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key::live("podRecreation.workers", "1 to 1024", "32", "Maximum number of records processed concurrently.").flag("--workers"),
    Key::live("podRecreation.selectors", "list", "[]", "Pods that are re-created in addition to those that request it by annotation."),
    Key::live("podRecreation.selectors[].matchLabels", "label: value", "", "Labels of such pods; at least one."),
    Key::live("podRecreation.owners", "list of kinds", "[]", "Kinds of controllers whose pods are re-created, too, if they request it or are selected, as `Kind` or `Kind.group`. Kinds that replace their own pods are refused."),
    Key::live("podRecreation.maxRetries", "0 to 100", "3", "Maximum number of re-creations of one pod."),
    Key::live("podRecreation.backoffSeconds", "seconds", "15", "Pause before the first re-creation; it doubles with each, up to five minutes."),
    Key::live("podRecreation.wipeTimeoutSeconds", "seconds", "120", "How long Belayer waits for the node agent to remove the files of a rejected pod."),
    Key::live("podRecreation.onWipeTimeout", "proceed or fail", "proceed", "What happens when that takes longer: `proceed` re-creates the pod on another node, `fail` does not re-create it."),
    Key::live("podRecreation.avoidRejectedNode", "true or false", "false", "Whether re-created pods are kept away from every node that rejected the pod."),
    Key::live("podRecreation.classes", "reason: race, transient, permanent or unknown", "{}", "Classes of single rejection reasons, which override the built-in table; `race` and `transient` are re-created, the others are reported."),
    Key::live("podRecreation.allowArgo", "true or false", "false", "Whether `podRecreation.owners` may name workflows of Argo Workflows, which retries its pods itself. If false, such owners are ignored, with a warning."),
    Key::live("podRecreation.recordTtlSeconds", "seconds", "3600", "How long an ended record is kept."),
    Key::live("podRecreation.storm.perOwner.perSecond", "number above 0", "5", "Re-creations per second of pods of one owner."),
    Key::live("podRecreation.storm.perOwner.burst", "1 or more", "50", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.perNode.perSecond", "number above 0", "5", "Re-creations per second of pods that one node rejected."),
    Key::live("podRecreation.storm.perNode.burst", "1 or more", "50", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.cluster.perSecond", "number above 0", "50", "Re-creations per second in the whole cluster."),
    Key::live("podRecreation.storm.cluster.burst", "1 or more", "500", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.breaker.rejections", "1 or more", "100", "Rejections by one node within `withinSeconds` that open the circuit breaker of the node."),
    Key::live("podRecreation.storm.breaker.withinSeconds", "seconds", "60", "The period in which `rejections` are counted."),
    Key::live("podRecreation.storm.breaker.openSeconds", "seconds", "30", "How long an open circuit breaker stops re-creations of pods that the node rejected."),
];
