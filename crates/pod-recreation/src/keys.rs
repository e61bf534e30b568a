//! Every key below `podRecreation` of the configuration file.

use belayer_controller::config::Key;

/// In the order of the documentation.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    Key::live("podRecreation.workers", "1 to 1024", "64", "Maximum number of records processed concurrently.").flag("--workers"),
    Key::live("podRecreation.selectors", "list", "[]", "Pods that are re-created in addition to those that request it by annotation."),
    Key::live("podRecreation.selectors[].matchLabels", "label: value, not empty", "", "Labels of such pods; at least one."),
    Key::live("podRecreation.namespaces.include", "list of names", "[]", "Only pods in these namespaces; all if empty. The admission policy does not read this key; the chart limits it to the same names."),
    Key::live("podRecreation.namespaces.exclude", "list of names", "[]", "No pods in these namespaces."),
    Key::live("podRecreation.owners", "list of kinds", "[]", "Kinds of controllers whose pods are re-created, too, if they request it or are selected, as `Kind` or `Kind.group`. Kinds that replace their own pods are refused."),
    Key::live("podRecreation.maxRetries", "0 to 100", "3", "Maximum number of re-creations of one pod."),
    Key::live("podRecreation.backoff.initial", "duration", "15s", "Pause before the first re-creation, in whole seconds."),
    Key::live("podRecreation.backoff.factor", "number, 1 to 10", "2", "Multiplier of each further pause; 1 keeps it constant."),
    Key::live("podRecreation.backoff.max", "duration", "5m", "The longest pause, in whole seconds."),
    Key::live("podRecreation.backoff.jitter", "number, 0 to 1", "0.1", "Maximum random part of a pause that is added to it, so that pods that were rejected together are not re-created together."),
    Key::live("podRecreation.backoffSeconds", "seconds", "", "Deprecated: `podRecreation.backoff.initial` without a unit."),
    Key::live("podRecreation.carry.managers", "list of names", "[]", "Field managers whose annotations re-created pods keep, in addition to those of the pod's creator and of `kubectl`."),
    Key::live("podRecreation.carry.keep", "list of names", "[]", "Annotations that re-created pods keep, whoever wrote them. A name that ends in `*` is a prefix."),
    Key::live("podRecreation.carry.drop", "list of names", "[]", "Labels and annotations that re-created pods do not keep, in addition to the built-in list; never `belayer.dev/recreate` and `belayer.dev/wipe`. A name that ends in `*` is a prefix."),
    Key::live("podRecreation.wipeTimeoutSeconds", "seconds", "120", "How long Belayer waits for the node agent to remove the files of a rejected pod."),
    Key::live("podRecreation.onWipeTimeout", "proceed or fail", "proceed", "What happens when that takes longer: `proceed` re-creates the pod on another node, `fail` does not re-create it."),
    Key::live("podRecreation.avoidRejectedNode", "true or false", "false", "Whether re-created pods are kept away from every node that rejected the pod."),
    Key::live("podRecreation.classes", "reason: race, transient, permanent or unknown", "{}", "Classes of single rejection reasons, which override the built-in table; `race` and `transient` are re-created, the others are reported."),
    Key::live("podRecreation.allowArgo", "true or false", "false", "Whether `podRecreation.owners` may name workflows of Argo Workflows, which retries its pods itself. If false, such owners are ignored, with a warning."),
    Key::live("podRecreation.recordTtlSeconds", "seconds", "3600", "How long an ended record is kept."),
    Key::live("podRecreation.storm.perOwner.perSecond", "number above 0", "5", "Re-creations per second of pods of one owner."),
    Key::live("podRecreation.storm.perOwner.burst", "1 or more", "50", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.perNamespace.perSecond", "number above 0", "25", "Re-creations per second of pods in one namespace."),
    Key::live("podRecreation.storm.perNamespace.burst", "1 or more", "250", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.perNode.perSecond", "number above 0", "5", "Re-creations per second of pods of one namespace that one node rejected."),
    Key::live("podRecreation.storm.perNode.burst", "1 or more", "50", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.cluster.perSecond", "number above 0", "50", "Re-creations per second in the whole cluster."),
    Key::live("podRecreation.storm.cluster.burst", "1 or more", "500", "How many of them may happen at once after a pause."),
    Key::live("podRecreation.storm.breaker.rejections", "1 or more", "100", "Rejections by one node within `withinSeconds` that open a circuit breaker: for one namespace on that node, or, if at least three namespaces contribute, for the whole node. One namespace counts for at most a third of the node's."),
    Key::live("podRecreation.storm.breaker.withinSeconds", "1 or more", "60", "The period in which `rejections` are counted."),
    Key::live("podRecreation.storm.breaker.openSeconds", "seconds", "30", "How long an open circuit breaker stops re-creations of pods that the node rejected."),
    Key::live("podRecreation.storm.breaker.namespaces", "list of names", "[]", "Namespaces whose rejections alone open the circuit breaker of a whole node, for clusters with fewer than three namespaces. List only namespaces whose users you trust."),
];
