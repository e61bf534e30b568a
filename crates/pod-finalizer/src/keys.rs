//! Every key below `podFinalizer` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key::live("podFinalizer.workers", "1 to 1024", "32", "Pods worked on at once.").flag("--workers"),
    Key::live("podFinalizer.backlogThreshold", "pods", "4000", "When more held pods than this are being deleted, no holds are added until there are half as many. A namespace with more than a quarter of it (at least 50) gets no holds either, and counts for no more than that quarter in the whole cluster."),
    Key::live("podFinalizer.maxUnselected", "pods or percent", "10%", "When more held pods than this are selected by no profile any more, their holds are kept until there is other evidence, because that many at once look like a mistyped selector. Counted per namespace; pods that a configuration change unselects also over the cluster."),
    Key::live("podFinalizer.resync", "duration, 10s or more", "10m", "How often each pod is looked at without a reason, on average."),
    Key::live("podFinalizer.outcomeTtl", "duration, 1s or more", "7d", "How long a recorded outcome is kept that no owner collects."),
    Key::live("podFinalizer.profiles", "list", "[{builtIn: argo}]", "Which pods are held, for whom, and until when. The first that selects a pod counts."),
    Key::live("podFinalizer.profiles[].builtIn", "argo", "", "The built-in profile that this one starts from; the other keys replace its own, save the selector, which narrows it."),
    Key::live("podFinalizer.profiles[].name", "name", "", "Its name in Events and logs; needed without `builtIn`."),
    Key::live("podFinalizer.profiles[].mode", "enforce or observe", "enforce", "`observe` decides and reports, and writes nothing."),
    Key::live("podFinalizer.profiles[].selector.matchLabels", "label: value", "{}", "Labels of the pods that are held."),
    Key::live("podFinalizer.profiles[].selector.matchExpressions[].key", "label", "", "A label of the pods that are held."),
    Key::live("podFinalizer.profiles[].selector.matchExpressions[].operator", "In, NotIn, Exists or DoesNotExist", "", "What must be true of it."),
    Key::live("podFinalizer.profiles[].selector.matchExpressions[].values", "list of values", "[]", "For `In` and `NotIn`."),
    Key::live("podFinalizer.profiles[].namespaces.include", "list of names", "[]", "Only pods in these namespaces; all if empty. A namespace with the label `belayer.dev/ignore=true` is left alone in any case. The admission policy knows nothing of this key: give its `namespaceSelector` the same names, or it ties pods that nothing selects; `belayer check` compares the two."),
    Key::live("podFinalizer.profiles[].namespaces.exclude", "list of names", "[]", "No pods in these namespaces."),
    Key::live("podFinalizer.profiles[].owner.group", "API group", "", "Group of the kind that owns the pods; empty is the core group."),
    Key::live("podFinalizer.profiles[].owner.version", "API version", "", "Version of that kind."),
    Key::live("podFinalizer.profiles[].owner.kind", "kind", "", "The kind, such as `Workflow`."),
    Key::live("podFinalizer.profiles[].owner.resource", "plural", "", "Its lower-case plural, such as `workflows`."),
    Key::live("podFinalizer.profiles[].consumed.labels", "label: value", "", "Labels that say that a pod's result was taken."),
    Key::live("podFinalizer.profiles[].ownerFinished.labels", "label: value", "", "Labels of the owner that say that it has finished."),
    Key::live("podFinalizer.profiles[].releaseAfter", "duration, 1s or more", "", "Release a deleted pod that long after its grace period, whether its result was taken or not, and whether it has ended or not."),
    Key::live("podFinalizer.profiles[].ownerStatus", "none or argo", "", "Whose status is read to learn which results were taken."),
    Key::live("podFinalizer.profiles[].adopt", "list of finalizers", "[]", "Finalizers of others that are released with ours."),
    Key::live("podFinalizer.profiles[].capture", "true or false", "false", "Record each outcome as a `PodOutcome`."),
    Key::live("podFinalizer.profiles[].consumer", "pod or podOutcome", "", "What the consumer reads. `podOutcome`: a pod is released once its record is written. This is the default with `capture: true` if the profile names no owner, or no label that shows that a result was taken. It is refused for Argo Workflows, which reads only pods."),
    Key::live("podFinalizer.profiles[].deletedWhileRunning", "release or hold", "release", "Argo Workflows only: what happens to a pod that was deleted before it had a result. `release`: it is released once it has ended, so that Argo finds what it would find without Belayer. `hold`: it is held until Argo has read how the deletion ended it."),
    Key::live("podFinalizer.profiles[].nodeLostDelay", "duration", "0s", "Argo Workflows only: how long a deleted pod is held after its node was found lost."),
    Key::live("podFinalizer.profiles[].cleanup", "none or argo", "none", "Whether pods are deleted when their workflow asks for it; needs the feature gate PodCleanup."),
];
