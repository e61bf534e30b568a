//! The names, so that a misspelt metric does not compile.

/// Keys ready to be worked on, per queue and priority band.
pub const WORKQUEUE_DEPTH: &str = "workqueue_depth";
/// Keys added to a queue; merged duplicates are not counted.
pub const WORKQUEUE_ADDS: &str = "workqueue_adds_total";
/// How long a key waited in a queue before a worker took it.
pub const WORKQUEUE_QUEUE_DURATION: &str = "workqueue_queue_duration_seconds";
/// How long a worker spent on a key.
pub const WORKQUEUE_WORK_DURATION: &str = "workqueue_work_duration_seconds";
/// Seconds of work in progress that no finished key accounts for yet.
pub const WORKQUEUE_UNFINISHED_WORK: &str = "workqueue_unfinished_work_seconds";
/// How long the longest running worker has been on its key.
pub const WORKQUEUE_LONGEST_RUNNING: &str = "workqueue_longest_running_processor_seconds";
/// Keys added again with backoff.
pub const WORKQUEUE_RETRIES: &str = "workqueue_retries_total";

/// Answers of the API server, and requests that got none.
pub const REST_REQUESTS: &str = "rest_client_requests_total";
/// Time from sending a request to the head of its answer.
pub const REST_REQUEST_DURATION: &str = "rest_client_request_duration_seconds";

/// Whether this process leads the election of that name.
pub const LEADER: &str = "leader_election_master_status";

/// How often the configuration file was read again, by what came of it.
pub const CONFIG_RELOADS: &str = "belayer_config_reloads_total";
/// Whether the configuration file was good when it was last read.
pub const CONFIG_GOOD: &str = "belayer_config_last_reload_successful";

/// Objects that carry our hold now.
pub const HOLDS: &str = "belayer_holds";
/// Holds that were added.
pub const HOLDS_ADDED: &str = "belayer_holds_added_total";
/// Holds that were released, per evidence.
pub const RELEASES: &str = "belayer_releases_total";
/// Time from the moment the evidence existed to the release.
pub const RELEASE_DURATION: &str = "belayer_release_duration_seconds";
/// Releases that the API server refused.
pub const RELEASE_DENIED: &str = "belayer_release_denied_total";
/// Objects that are being deleted and still carry our hold.
pub const WAITING: &str = "belayer_waiting";
/// Age of the oldest deletion that still waits for us.
pub const OLDEST_WAITING: &str = "belayer_oldest_waiting_seconds";
/// Objects whose deletion began before we could hold them.
pub const MISSED_HOLDS: &str = "belayer_missed_holds_total";
/// Namespaces whose backlog gate is closed.
pub const BACKLOG_NAMESPACES: &str = "belayer_backlog_namespaces_closed";
/// 1 while the backlog gate is closed.
pub const BACKLOG_GATE: &str = "belayer_backlog_gate";
/// Holds kept although no profile selects their object any more.
pub const UNSELECTED_KEPT: &str = "belayer_unselected_kept";
/// Objects of observe mode that vanished before their result was taken.
pub const OBSERVED_LOSSES: &str = "belayer_observed_losses_total";
/// Pods whose result was not read, by evidence, mode and namespace.
pub const UNREAD_PODS: &str = "belayer_unread_pods_total";
/// Pods that were deleted by the cleanup that their annotation asks for.
pub const CLEANUPS: &str = "belayer_cleanups_total";
/// Outcomes of pods that were recorded, or could not be.
pub const OUTCOMES: &str = "belayer_outcome_records_total";
/// Pods that still carry a hold and whose owner waits for them.
pub const PODS_REMAINING: &str = "belayer_pods_remaining";
/// Re-creations of rejected pods, by reason of the rejection and how they ended.
pub const RECREATIONS: &str = "belayer_recreations_total";
/// Pods whose every allowed re-creation was rejected too.
pub const RECREATION_BUDGET_EXHAUSTED: &str = "belayer_recreation_budget_exhausted_total";
/// Breakers that are open, per scope.
pub const BREAKER_OPEN: &str = "belayer_breaker_open";
/// Events that were not written because too many stood in line.
pub const EVENTS_DROPPED: &str = "belayer_events_dropped_total";
/// Panics that a worker caught.
pub const WORKER_PANICS: &str = "belayer_worker_panics_total";

/// Lifecycles that have work, by phase and by whether the store still asks for their object.
pub const WORKERS: &str = "belayer_workers";
/// Objects that the store asks for, as far as lifecycles were told.
pub const WORKERS_DESIRED: &str = "belayer_workers_desired";
/// Lifecycles for which something may run.
pub const WORKERS_ACTIVE: &str = "belayer_workers_active";
/// Objects that were created again before the work of their own UID had finished.
pub const WORKER_RESTARTS: &str = "belayer_worker_restarts_total";
/// Objects that vanished without a word, and remains that were found.
pub const WORKER_ORPHANS: &str = "belayer_worker_orphans_total";

/// Tries of the node agent to wipe its node of a pod.
pub const WIPE_TRIES: &str = "belayer_wipe_tries_total";
/// Time from the wish for a wipe to its end.
pub const WIPE_DURATION: &str = "belayer_wipe_duration_seconds";
/// Files and directories that the node agent removed.
pub const WIPE_REMOVED: &str = "belayer_wipe_removed_total";
/// Pods that the node agent has yet to wipe its node of.
pub const WIPES_PENDING: &str = "belayer_wipes_pending";

/// Objects in a store.
pub const INFORMER_OBJECTS: &str = "belayer_informer_objects";
/// Time since a store last heard from the API server.
pub const INFORMER_LAG: &str = "belayer_informer_lag_seconds";
/// Lists that replaced a store.
pub const INFORMER_RELISTS: &str = "belayer_informer_relists_total";
/// Objects that could not be decoded and were skipped.
pub const INFORMER_BAD_OBJECTS: &str = "belayer_informer_bad_objects_total";
/// Requests to the API server that wait for a slot or a token.
pub const API_WAITING: &str = "belayer_api_waiting";
/// Live questions, per answer.
pub const FACTS: &str = "belayer_facts_total";

/// Always 1, with the version as its label.
pub const BUILD_INFO: &str = "belayer_build_info";

/// Processor time used by the process.
pub const PROCESS_CPU: &str = "process_cpu_seconds_total";
/// File descriptors in use.
pub const PROCESS_OPEN_FDS: &str = "process_open_fds";
/// File descriptors that may be in use.
pub const PROCESS_MAX_FDS: &str = "process_max_fds";
/// Virtual memory.
pub const PROCESS_VIRTUAL_MEMORY: &str = "process_virtual_memory_bytes";
/// Virtual memory that may be used.
pub const PROCESS_VIRTUAL_MEMORY_MAX: &str = "process_virtual_memory_max_bytes";
/// Resident memory.
pub const PROCESS_RESIDENT_MEMORY: &str = "process_resident_memory_bytes";
/// Start of the process, in seconds since 1970.
pub const PROCESS_START_TIME: &str = "process_start_time_seconds";
/// Threads of the process.
pub const PROCESS_THREADS: &str = "process_threads";
