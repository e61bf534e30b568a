//! Every key below `podRecreation` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key::live("podRecreation.workers", "1 to 1024", "32", "Records worked on at once.").flag("--workers"),
    Key::live("podRecreation.selectors", "list", "[]", "Pods that are re-created beside those that ask by annotation."),
    Key::live("podRecreation.selectors[].matchLabels", "label: value", "", "Labels of such pods; at least one."),
    Key::live("podRecreation.owners", "list of kinds", "[]", "Kinds of controllers whose pods are re-created as well, if they ask for it or are selected, as `Kind` or `Kind.group`; never one that replaces its pods itself."),
    Key::live("podRecreation.maxRetries", "0 to 100", "3", "Re-creations of one pod."),
    Key::live("podRecreation.backoffSeconds", "seconds", "15", "Pause before the first re-creation; it doubles with each."),
    Key::live("podRecreation.wipeTimeoutSeconds", "seconds", "120", "How long the node agent may take to wipe the state of a rejected pod."),
    Key::live("podRecreation.onWipeTimeout", "proceed or fail", "proceed", "What follows when it takes longer: re-create on another node, or not at all."),
    Key::live("podRecreation.avoidRejectedNode", "true or false", "false", "Never go back to a node that rejected the pod."),
    Key::live("podRecreation.classes", "reason: race, transient, permanent or unknown", "{}", "What single reasons of rejections mean; race and transient are re-created."),
    Key::live("podRecreation.allowArgo", "true or false", "false", "Whether `podRecreation.owners` may name workflows of Argo Workflows, which retries its pods itself. If false, such owners are ignored, with a warning."),
    Key::live("podRecreation.recordTtlSeconds", "seconds", "3600", "How long a record is kept after its end."),
    Key::live("podRecreation.storm.perOwner.perSecond", "number above 0", "5", "Re-creations a second of one owner's pods."),
    Key::live("podRecreation.storm.perOwner.burst", "1 or more", "50", "How many of them may go at once after a pause."),
    Key::live("podRecreation.storm.perNode.perSecond", "number above 0", "5", "Re-creations a second after one node's rejections."),
    Key::live("podRecreation.storm.perNode.burst", "1 or more", "50", "How many of them may go at once after a pause."),
    Key::live("podRecreation.storm.cluster.perSecond", "number above 0", "50", "Re-creations a second in all."),
    Key::live("podRecreation.storm.cluster.burst", "1 or more", "500", "How many of them may go at once after a pause."),
    Key::live("podRecreation.storm.breaker.rejections", "1 or more", "100", "So many rejections ..."),
    Key::live("podRecreation.storm.breaker.withinSeconds", "seconds", "60", "... of one node within this time give it a rest ..."),
    Key::live("podRecreation.storm.breaker.openSeconds", "seconds", "30", "... of this length."),
];
