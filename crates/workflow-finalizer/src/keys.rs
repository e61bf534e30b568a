//! Every key below `workflowFinalizer` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    Key::live("workflowFinalizer.workers", "1 to 1024", "16", "Maximum number of workflows processed concurrently, per kind.").flag("--workers"),
    Key::live("workflowFinalizer.maxUnselected", "workflows or percent", "10%", "As `podFinalizer.maxUnselected`."),
    Key::live("workflowFinalizer.resync", "duration, 1s or more", "1m", "How often a waiting deletion is checked again without an event."),
    Key::live("workflowFinalizer.owners", "list, not empty", "[{}]", "The kinds that are held; the workflows of Argo Workflows if left out. After you remove a kind from the list, `belayer drain --unselected --config FILE`, with the new file, removes the finalizers from its objects."),
    Key::live("workflowFinalizer.owners[].owner.group", "API group", "", "Group of a kind that owns pods."),
    Key::live("workflowFinalizer.owners[].owner.version", "API version", "", "Version of that kind."),
    Key::live("workflowFinalizer.owners[].owner.kind", "kind", "", "The kind, such as `Workflow`."),
    Key::live("workflowFinalizer.owners[].owner.resource", "plural", "", "Its lower-case plural, such as `workflows`."),
    Key::live("workflowFinalizer.owners[].podLabel", "label", "", "The pod label whose value is the name of the owner. With it, Belayer lists only the pods with this label instead of all pods of the namespace."),
    Key::live("workflowFinalizer.owners[].until", "podsReleased or archived", "podsReleased", "`archived` holds a deleted workflow of Argo that has completed also until Argo has archived it, as its label `workflows.argoproj.io/workflow-archiving-status` shows. If its namespace is deleted, Belayer does not wait for that."),
    Key::live("workflowFinalizer.owners[].selector.matchLabels", "label: value", "{}", "Labels of the objects that are held."),
    Key::live("workflowFinalizer.owners[].selector.matchExpressions[].key", "label", "", "A label of the objects that are held."),
    Key::live("workflowFinalizer.owners[].selector.matchExpressions[].operator", "In, NotIn, Exists or DoesNotExist", "", "The condition on the label."),
    Key::live("workflowFinalizer.owners[].selector.matchExpressions[].values", "list of values", "[]", "For `In` and `NotIn`."),
    Key::live("workflowFinalizer.owners[].namespaces.include", "list of names", "[]", "Only in these namespaces; all if empty."),
    Key::live("workflowFinalizer.owners[].namespaces.exclude", "list of names", "[]", "Not in these namespaces."),
];
