//! The names of the metrics, so that a misspelt one does not compile.

/// Keys ready to be worked on, per queue and priority.
pub const WORKQUEUE_DEPTH: &str = "workqueue_depth";
/// Keys added to a queue; merged duplicates are not counted.
pub const WORKQUEUE_ADDS: &str = "workqueue_adds_total";
/// How long a key waited in a queue before a worker took it.
pub const WORKQUEUE_QUEUE_DURATION: &str = "workqueue_queue_duration_seconds";
/// How long a worker spent on a key.
pub const WORKQUEUE_WORK_DURATION: &str = "workqueue_work_duration_seconds";
/// Seconds of work in progress that no finished key includes yet.
pub const WORKQUEUE_UNFINISHED_WORK: &str = "workqueue_unfinished_work_seconds";
/// How long the longest running worker has been on its key.
pub const WORKQUEUE_LONGEST_RUNNING: &str = "workqueue_longest_running_processor_seconds";
/// Keys added again with backoff.
pub const WORKQUEUE_RETRIES: &str = "workqueue_retries_total";

/// Responses of the API server, and requests without a response.
pub const REST_REQUESTS: &str = "rest_client_requests_total";
/// Time from sending a request to the headers of its response.
pub const REST_REQUEST_DURATION: &str = "rest_client_request_duration_seconds";

/// Whether this process is the leader of the election of that name.
pub const LEADER: &str = "leader_election_master_status";

/// How often the configuration file was read again, by result.
pub const CONFIG_RELOADS: &str = "belayer_config_reloads_total";
/// Whether the configuration file was valid when it was last read.
pub const CONFIG_GOOD: &str = "belayer_config_last_reload_successful";

/// Objects that have a finalizer of Belayer's (a hold).
pub const HOLDS: &str = "belayer_holds";
/// Holds that were added.
pub const HOLDS_ADDED: &str = "belayer_holds_added_total";
/// Holds that were released, by evidence.
pub const RELEASES: &str = "belayer_releases_total";
/// Time from when the evidence existed to the release.
pub const RELEASE_DURATION: &str = "belayer_release_duration_seconds";
/// Releases that the API server refused.
pub const RELEASE_DENIED: &str = "belayer_release_denied_total";
/// Objects that are being deleted and still have a hold.
pub const WAITING: &str = "belayer_waiting";
/// Age of the oldest deletion that still waits for Belayer.
pub const OLDEST_WAITING: &str = "belayer_oldest_waiting_seconds";
/// Objects whose deletion began before Belayer could hold them.
pub const MISSED_HOLDS: &str = "belayer_missed_holds_total";
/// Namespaces whose backlog limit is reached.
pub const BACKLOG_NAMESPACES: &str = "belayer_backlog_namespaces_closed";
/// 1 while the backlog limit is reached.
pub const BACKLOG_GATE: &str = "belayer_backlog_gate";
/// Holds kept although no profile selects their object any more.
pub const UNSELECTED_KEPT: &str = "belayer_unselected_kept";
/// How long no owner of ended, deleted and held pods has changed.
pub const CONSUMER_SILENT: &str = "belayer_consumer_silent_seconds";
/// Objects of observe mode that vanished before their result was read.
pub const OBSERVED_LOSSES: &str = "belayer_observed_losses_total";
/// Pods whose result was not read, by evidence, mode and namespace.
pub const UNREAD_PODS: &str = "belayer_unread_pods_total";
/// Pods that were deleted by the cleanup that their annotation requests.
pub const CLEANUPS: &str = "belayer_cleanups_total";
/// Outcomes of pods that were recorded, or could not be.
pub const OUTCOMES: &str = "belayer_outcome_records_total";
/// Pods that still have a hold and whose owner waits for them.
pub const PODS_REMAINING: &str = "belayer_pods_remaining";
/// Re-creations of rejected pods, by reason of the rejection and by result.
pub const RECREATIONS: &str = "belayer_recreations_total";
/// Pods of which every allowed re-creation was rejected too.
pub const RECREATION_BUDGET_EXHAUSTED: &str = "belayer_recreation_budget_exhausted_total";
/// Open circuit breakers, per scope.
pub const BREAKER_OPEN: &str = "belayer_breaker_open";
/// Events that were not written: too many were queued or about one object, the request failed, or the process stopped before.
pub const EVENTS_DROPPED: &str = "belayer_events_dropped_total";
/// Panics that a worker caught.
pub const WORKER_PANICS: &str = "belayer_worker_panics_total";

/// Lifecycles that have work, by phase and by whether the store contains their object.
pub const WORKERS: &str = "belayer_workers";
/// Objects that the store contains, as far as lifecycles have observed.
pub const WORKERS_DESIRED: &str = "belayer_workers_desired";
/// Lifecycles for which something may run.
pub const WORKERS_ACTIVE: &str = "belayer_workers_active";
/// Objects that were created again before the work of their own UID had finished.
pub const WORKER_RESTARTS: &str = "belayer_worker_restarts_total";
/// Objects that vanished without an observed deletion, and remains that were found.
pub const WORKER_ORPHANS: &str = "belayer_worker_orphans_total";

/// Attempts of the node agent to wipe the remains of a pod from its node.
pub const WIPE_TRIES: &str = "belayer_wipe_tries_total";
/// Time from the request for a wipe to its end.
pub const WIPE_DURATION: &str = "belayer_wipe_duration_seconds";
/// Files and directories that the node agent removed.
pub const WIPE_REMOVED: &str = "belayer_wipe_removed_total";
/// Pods whose remains the node agent still has to wipe from its node.
pub const WIPES_PENDING: &str = "belayer_wipes_pending";

/// Objects in a store.
pub const INFORMER_OBJECTS: &str = "belayer_informer_objects";
/// Time since the API server last sent something to a store.
pub const INFORMER_LAG: &str = "belayer_informer_lag_seconds";
/// Lists that replaced a store.
pub const INFORMER_RELISTS: &str = "belayer_informer_relists_total";
/// Objects that could not be decoded and were skipped.
pub const INFORMER_BAD_OBJECTS: &str = "belayer_informer_bad_objects_total";
/// Requests to the API server that wait for a slot or a token.
pub const API_WAITING: &str = "belayer_api_waiting";
/// Live reads, by query and answer.
pub const FACTS: &str = "belayer_facts_total";

/// Always 1, with the version as its label.
pub const BUILD_INFO: &str = "belayer_build_info";

/// CPU time used by the process.
pub const PROCESS_CPU: &str = "process_cpu_seconds_total";
/// File descriptors in use.
pub const PROCESS_OPEN_FDS: &str = "process_open_fds";
/// Maximum number of file descriptors.
pub const PROCESS_MAX_FDS: &str = "process_max_fds";
/// Virtual memory.
pub const PROCESS_VIRTUAL_MEMORY: &str = "process_virtual_memory_bytes";
/// Maximum virtual memory.
pub const PROCESS_VIRTUAL_MEMORY_MAX: &str = "process_virtual_memory_max_bytes";
/// Resident memory.
pub const PROCESS_RESIDENT_MEMORY: &str = "process_resident_memory_bytes";
/// Start of the process, in seconds since 1970.
pub const PROCESS_START_TIME: &str = "process_start_time_seconds";
/// Threads of the process.
pub const PROCESS_THREADS: &str = "process_threads";
