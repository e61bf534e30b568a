//! Every key below `workflowFinalizer` of the configuration file.

use belayer_controller::config::Key;

/// In the order in which people write them.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key::live("workflowFinalizer.workers", "1 to 1024", "16", "Workflows worked on at once, per kind.").flag("--workers"),
    Key::live("workflowFinalizer.maxUnselected", "workflows or percent", "10%", "As `podFinalizer.maxUnselected`."),
    Key::live("workflowFinalizer.resync", "duration, 1s or more", "1m", "How often a deletion that waits is looked at without any event."),
    Key::live("workflowFinalizer.owners", "list", "[{}]", "The kinds that are held; the workflows of Argo Workflows if left out. Of a kind that is taken out `belayer drain --unselected` takes the holds off."),
    Key::live("workflowFinalizer.owners[].owner.group", "API group", "", "Group of a kind that owns pods."),
    Key::live("workflowFinalizer.owners[].owner.version", "API version", "", "Version of that kind."),
    Key::live("workflowFinalizer.owners[].owner.kind", "kind", "", "The kind, such as `Workflow`."),
    Key::live("workflowFinalizer.owners[].owner.resource", "plural", "", "Its lower-case plural, such as `workflows`."),
    Key::live("workflowFinalizer.owners[].podLabel", "label", "", "The label by which pods name their owner, so that a live list need not be of the whole namespace."),
    Key::live("workflowFinalizer.owners[].selector.matchLabels", "label: value", "{}", "Labels of those that are held."),
    Key::live("workflowFinalizer.owners[].selector.matchExpressions[].key", "label", "", "A label of those that are held."),
    Key::live("workflowFinalizer.owners[].selector.matchExpressions[].operator", "In, NotIn, Exists or DoesNotExist", "", "What must be true of it."),
    Key::live("workflowFinalizer.owners[].selector.matchExpressions[].values", "list of values", "[]", "For `In` and `NotIn`."),
    Key::live("workflowFinalizer.owners[].namespaces.include", "list of names", "[]", "Only in these namespaces; all if empty."),
    Key::live("workflowFinalizer.owners[].namespaces.exclude", "list of names", "[]", "Not in these namespaces."),
];
