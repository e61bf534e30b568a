//! Every key below `podFinalizer` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    Key::live("podFinalizer.workers", "1 to 1024", "64", "Maximum number of pods processed concurrently.").flag("--workers"),
    Key::live("podFinalizer.backlogThreshold", "1 or more", "4000", "When more held pods than this are being deleted, Belayer adds no finalizers until there are half as many. A namespace has its own limit, a quarter of this (at least 50): above it, Belayer adds no finalizers in that namespace, and the namespace counts for no more than its limit in the whole cluster."),
    Key::live("podFinalizer.maxUnselected", "pods or percent", "10%", "When more held pods than this are selected by no profile any more, they stay held until there is other evidence, because that many at once look like a mistyped selector. A percentage allows at least 20 objects; a number is exact (`0` releases none). Pods that their own labels unselect are counted per namespace, those that a configuration change unselects per namespace and over the namespaces that do not exceed the limit themselves, and those of namespaces with the label `belayer.dev/ignore` over the whole cluster only."),
    Key::live("podFinalizer.resync", "duration, 10s or more", "10m", "How often each pod is checked again without an event, on average."),
    Key::live("podFinalizer.outcomeTtl", "duration, 1s or more", "7d", "How long a `PodOutcome` without an owner is kept."),
    Key::live("podFinalizer.profiles", "list, not empty", "[{builtIn: argo}]", "Which pods are held, for which consumer, and until when. The first profile that selects a pod applies. A list replaces the default."),
    Key::live("podFinalizer.profiles[].builtIn", "argo", "", "The built-in profile that this profile is based on. The other keys replace its values, except `selector`, which narrows its selector."),
    Key::live("podFinalizer.profiles[].name", "name", "", "Its name in Events and logs; required without `builtIn`."),
    Key::live("podFinalizer.profiles[].mode", "enforce or observe", "enforce", "`observe` decides and reports: it adds no finalizer, deletes nothing and records nothing. Holds that are there already are still removed on evidence."),
    Key::live("podFinalizer.profiles[].selector.matchLabels", "label: value", "{}", "Labels of the pods that are held."),
    Key::live("podFinalizer.profiles[].selector.matchExpressions[].key", "label", "", "A label of the pods that are held."),
    Key::live("podFinalizer.profiles[].selector.matchExpressions[].operator", "In, NotIn, Exists or DoesNotExist", "", "The condition on the label."),
    Key::live("podFinalizer.profiles[].selector.matchExpressions[].values", "list of values", "[]", "For `In` and `NotIn`."),
    Key::live("podFinalizer.profiles[].namespaces.include", "list of names", "[]", "Only pods in these namespaces; all if empty. A namespace with the label `belayer.dev/ignore=true` is always ignored. The admission policy does not read this key: give its `namespaceSelector` the same names, or it adds the finalizer to pods that no profile selects; `belayer check` compares the two."),
    Key::live("podFinalizer.profiles[].namespaces.exclude", "list of names", "[]", "No pods in these namespaces."),
    Key::live("podFinalizer.profiles[].owner.group", "API group", "", "Group of the kind that owns the pods; empty is the core group."),
    Key::live("podFinalizer.profiles[].owner.version", "API version", "", "Version of that kind."),
    Key::live("podFinalizer.profiles[].owner.kind", "kind", "", "The kind, such as `Workflow`."),
    Key::live("podFinalizer.profiles[].owner.resource", "plural", "", "Its lower-case plural, such as `workflows`."),
    Key::live("podFinalizer.profiles[].consumed.labels", "label: value", "", "Pod labels that show that the consumer has read the result."),
    Key::live("podFinalizer.profiles[].ownerFinished.labels", "label: value", "", "Labels of the owner that show that it has finished."),
    Key::live("podFinalizer.profiles[].releaseAfter", "duration, 1s or more", "", "Release a deleted pod this long after its grace period, even if its result was not read, and even if it has not ended. A new leader waits anew, for at most ten minutes."),
    Key::live("podFinalizer.profiles[].ownerStatus", "none or argo", "", "The owner's status format from which Belayer reads which results were read."),
    Key::live("podFinalizer.profiles[].consumedWhen", "CEL expression", "", "An expression over `owner`, the object that controls the pod. Once it is true, the results of the owner's pods count as taken, such as `has(owner.status.completionTime)`. It is evaluated for pods that have ended or are being deleted. At most 1024 bytes, without nested macros, and with macros that read only their own variable; owners up to 512 KiB. Needs `owner`; not with `ownerStatus: argo`."),
    Key::live("podFinalizer.profiles[].adopt", "list of finalizers", "[]", "Finalizers of other controllers that Belayer removes together with its own."),
    Key::live("podFinalizer.profiles[].capture", "true or false", "false", "Record each outcome as a `PodOutcome`."),
    Key::live("podFinalizer.profiles[].consumer", "pod or podOutcome", "", "What the consumer reads. `podOutcome`: a pod is released once its record is written. This is the default with `capture: true` if the profile names no owner, or no label that shows that a result was read. It is refused for Argo Workflows, which reads only pods."),
    Key::live("podFinalizer.profiles[].deletedWhileRunning", "release or hold", "release", "Argo Workflows only: what happens to a pod that was deleted before it had a result. `release`: it is released once it has ended, so that Argo finds what it would find without Belayer. `hold`: it is held until Argo has read how the deletion ended it."),
    Key::live("podFinalizer.profiles[].nodeLostDelay", "duration", "0s", "Argo Workflows only: how long a deleted pod stays held after its node was found to be lost."),
    Key::live("podFinalizer.profiles[].cleanup", "none or argo", "none", "Whether Belayer deletes released pods as the pod GC strategy of their workflow requires; needs the feature gate PodCleanup."),
];
