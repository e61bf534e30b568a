use super::*;
use crate::known_finalizers::KNOWN_FINALIZERS;
use rstest::rstest;

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn kind(kind: &str) -> Resource {
    Resource::new("example.com", "v1", kind, "any")
}

fn lease(renewed: i64) -> ReadResult<Lease> {
    ReadResult::Found(Lease {
        place: "keda/operator.keda.sh".into(),
        holder: "keda-operator-1".into(),
        renewed: Some(at(renewed)),
        seconds: 15,
    })
}

fn operator(ready: i64) -> ReadResult<Vec<Workload>> {
    ReadResult::Found(vec![Workload {
        kind: "deployment",
        namespace: "keda".into(),
        name: "keda-operator".into(),
        desired: 1,
        ready,
        images: vec![],
    }])
}

/// What was read, without Deployments of Belayer.
fn observed<'a>(
    workloads: &'a ReadResult<Vec<Workload>>,
    leases: &[&'a ReadResult<Lease>],
) -> Observed<'a> {
    Observed {
        workloads,
        leases: leases.to_vec(),
        recognized: Vec::new(),
        of_others: Vec::new(),
        driver: None,
        own: None,
    }
}

fn name_of(health: &ControllerHealth) -> &'static str {
    match health {
        ControllerHealth::Alive(..) => "alive",
        ControllerHealth::Down(..) => "down",
        ControllerHealth::Gone(_) => "gone",
        ControllerHealth::Unknown { .. } => "unknown",
    }
}

#[rstest]
#[case::renewed(operator(1), lease(-5), "alive")]
#[case::ready_without_a_lease(operator(1), ReadResult::Absent, "alive")]
#[case::ready_without_a_leader(operator(1), lease(-3_600), "down")]
#[case::not_ready(operator(0), ReadResult::Absent, "down")]
#[case::not_ready_with_a_dead_lease(operator(0), lease(-3_600), "down")]
#[case::nowhere(ReadResult::Found(vec![]), ReadResult::Absent, "gone")]
#[case::nowhere_with_a_dead_lease(ReadResult::Found(vec![]), lease(-3_600), "gone")]
#[case::nowhere_but_its_lease_is_renewed(ReadResult::Found(vec![]), lease(-1), "alive")]
#[case::nowhere_and_its_lease_is_unreadable(ReadResult::Found(vec![]), ReadResult::Unknown("not allowed".into()), "unknown")]
#[case::workloads_are_unreadable(ReadResult::Unknown("not allowed".into()), lease(-3_600), "unknown")]
#[case::workloads_are_unreadable_but_its_lease_is_renewed(ReadResult::Unknown("no".into()), lease(-1), "alive")]
fn a_known_controller(
    #[case] workloads: ReadResult<Vec<Workload>>,
    #[case] lease: ReadResult<Lease>,
    #[case] expected: &str,
) {
    let entry = KNOWN_FINALIZERS.find("finalizer.keda.sh").unwrap();
    let seen = observed(&workloads, &[&lease]);
    assert_eq!(
        name_of(&of_known(entry, &kind("ScaledObject"), &seen, at(0))),
        expected
    );
}

/// Other parts of a project run its image, and Leases outlive their controllers.
#[rstest]
#[case::strimzi_without_its_entity_operator("strimzi.io/topic-operator", "KafkaTopic",
    &[("kafka/strimzi-cluster-operator", "quay.io/strimzi/operator:0.45", 1)], "gone")]
#[case::strimzi("strimzi.io/topic-operator", "KafkaTopic",
    &[("kafka/my-cluster-entity-operator", "quay.io/strimzi/operator:0.45", 1)], "alive")]
#[case::argo_cd_with_only_its_server("resources-finalizer.argocd.argoproj.io", "Application",
    &[("argocd/argocd-server", "quay.io/argoproj/argocd:v3", 1),
      ("argocd/argocd-application-controller", "quay.io/argoproj/argocd:v3", 0)], "down")]
#[case::argo_cd_of_openshift("resources-finalizer.argocd.argoproj.io", "Application",
    &[("openshift-gitops/openshift-gitops-application-controller", "openshift-gitops-1/argocd-rhel8", 1)], "alive")]
#[case::an_application_set("resources-finalizer.argocd.argoproj.io", "ApplicationSet",
    &[("argocd/argocd-application-controller", "quay.io/argoproj/argocd:v3", 1),
      ("argocd/argocd-applicationset-controller", "quay.io/argoproj/argocd:v3", 0)], "down")]
#[case::crossplane_without_a_provider("finalizer.managedresource.crossplane.io", "Bucket.s3.aws.upbound.io",
    &[("crossplane-system/crossplane", "xpkg.crossplane.io/crossplane/crossplane:v2", 1)], "unknown")]
#[case::a_crossplane_provider("finalizer.managedresource.crossplane.io", "Bucket.s3.aws.upbound.io",
    &[("upbound-system/s3", "xpkg.upbound.io/upbound/provider-aws-s3:v1", 0)], "down")]
#[case::of_another_publisher("finalizer.managedresource.crossplane.io", "Stack.cloud.grafana.crossplane.io",
    &[("crossplane-system/grafana-5d1f7c", "xpkg.upbound.io/grafana/provider-grafana@sha256:00", 1)], "alive")]
#[case::another_provider("finalizer.managedresource.crossplane.io", "Bucket.s3.aws.upbound.io",
    &[("crossplane-system/provider-kubernetes-1", "xpkg.upbound.io/upbound/provider-kubernetes:v1", 1)], "unknown")]
#[case::a_provider_config("in-use.crossplane.io", "ProviderConfig.aws.upbound.io",
    &[("crossplane-system/s3", "xpkg.upbound.io/upbound/provider-aws-s3:v1", 0),
      ("crossplane-system/aws", "xpkg.upbound.io/upbound/provider-family-aws:v1", 1)], "alive")]
#[case::ack("finalizers.s3.services.k8s.aws/Bucket", "Bucket.s3.services.k8s.aws",
    &[("ack-system/ack-s3-controller", "public.ecr.aws/aws-controllers-k8s/s3-controller:1.0", 1)], "alive")]
#[case::ack_of_another_service("finalizers.s3.services.k8s.aws/Bucket", "Bucket.s3.services.k8s.aws",
    &[("ack-system/ack-rds-controller", "public.ecr.aws/aws-controllers-k8s/rds-controller:1.0", 1)], "unknown")]
#[case::prometheus_without_its_operator("monitoring.coreos.com/status-cleanup", "ServiceMonitor",
    &[("monitoring/prometheus-a", "quay.io/prometheus-operator/prometheus-config-reloader:v0.80", 1)], "gone")]
#[case::prometheus_operator("monitoring.coreos.com/status-cleanup", "ServiceMonitor",
    &[("monitoring/stack-operator", "quay.io/prometheus-operator/prometheus-operator:v0.80", 1)], "alive")]
#[case::keda_with_only_its_metrics("finalizer.keda.sh", "ScaledObject",
    &[("keda/metrics", "ghcr.io/kedacore/keda-metrics-apiserver:2.17", 1)], "gone")]
#[case::argo_events_with_only_a_sensor("eventbus-controller", "EventBus",
    &[("argo-events/my-sensor", "quay.io/argoproj/argo-events:v1.9", 1),
      ("argo-events/controller-manager", "quay.io/argoproj/argo-events:v1.9", 0)], "down")]
#[case::argo_events_with_only_its_sensors("eventbus-controller", "EventBus",
    &[("argo-events/my-sensor", "quay.io/argoproj/argo-events:v1.9", 1)], "gone")]
#[case::argo_events_in_another_namespace("eventbus-controller", "EventBus",
    &[("events/controller-manager", "quay.io/argoproj/argo-events:v1.9", 1)], "unknown")]
#[case::velero_with_only_its_node_agent("restores.velero.io/external-resources-finalizer", "Restore",
    &[("velero/node-agent", "velero/velero:v1.14", 1)], "gone")]
#[case::crossplane_with_only_its_rbac_manager("composite.apiextensions.crossplane.io", "XBucket",
    &[("crossplane-system/crossplane-rbac-manager", "xpkg.crossplane.io/crossplane/crossplane:v2", 1)], "gone")]
#[case::gatekeeper_with_only_its_audit("constrainttemplate.finalizers.gatekeeper.sh", "ConstraintTemplate",
    &[("gatekeeper-system/gatekeeper-audit", "openpolicyagent/gatekeeper:v3.18", 1)], "gone")]
#[case::tekton_results_with_only_its_api("results.tekton.dev/pipelinerun", "PipelineRun",
    &[("tekton-pipelines/tekton-results-api",
       "gcr.io/tekton-releases/github.com/tektoncd/results/cmd/api:v0.13", 1)], "gone")]
#[case::tekton_results("results.tekton.dev/pipelinerun", "PipelineRun",
    &[("openshift/watcher", "gcr.io/tekton-releases/github.com/tektoncd/results/cmd/watcher:v0.13", 1)], "alive")]
#[case::longhorn_with_only_its_deployer("longhorn.io", "Volume",
    &[("longhorn-system/longhorn-driver-deployer", "longhornio/longhorn-manager:v1.8", 1)], "gone")]
#[case::external_secrets_with_only_its_webhook("pushsecret.externalsecrets.io/finalizer", "PushSecret",
    &[("external-secrets/external-secrets-webhook", "ghcr.io/external-secrets/external-secrets:v0.14", 1)], "gone")]
#[case::kueue_with_only_its_dashboard("kueue.x-k8s.io/managed", "Pod",
    &[("kueue-system/kueue-kueueviz-backend", "registry.k8s.io/kueue/kueueviz-backend:v0.13", 1)], "gone")]
#[case::knative_eventing_with_only_its_webhook("brokers.eventing.knative.dev", "Broker",
    &[("knative-eventing/eventing-webhook", "openshift-serverless-1/knative-eventing-webhook-rhel8:1", 1)], "gone")]
#[case::consul_with_only_its_certificates("finalizers.consul.hashicorp.com", "ServiceDefaults",
    &[("consul/consul-webhook-cert-manager", "hashicorp/consul-k8s-control-plane:1.6", 1)], "gone")]
#[case::rook_with_only_its_toolbox("ceph.rook.io/disaster-protection", "Secret",
    &[("rook-ceph/rook-ceph-tools", "docker.io/rook/ceph:v1.17", 1)], "gone")]
#[case::a_snapshot_whose_driver_is_gone(
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection", "VolumeSnapshotContent",
    &[("kube-system/snapshot-controller", "registry.k8s.io/sig-storage/snapshot-controller:v8", 1)], "unknown")]
fn another_part_of_a_project_is_not_its_controller(
    #[case] finalizer: &str,
    #[case] kind: &str,
    #[case] workloads: &[(&str, &str, i64)],
    #[case] expected: &str,
) {
    let workload = |(place, image, ready): &(&str, &str, i64)| {
        let (namespace, name) = place.split_once('/').unwrap();
        Workload {
            kind: "deployment",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            desired: 1,
            ready: *ready,
            images: vec![(*image).to_owned()],
        }
    };
    let entry = KNOWN_FINALIZERS.find(finalizer).unwrap();
    let workloads = ReadResult::Found(workloads.iter().map(workload).collect());
    let seen = observed(&workloads, &[]);
    let (kind, group) = kind.split_once('.').unwrap_or((kind, "example.com"));
    let of = Resource::new(group, "v1", kind, "any");
    let health = of_known(entry, &of, &seen, at(0));
    assert_eq!(name_of(&health), expected, "{health:?}");
}

/// kube-controller-manager runs as a static pod or outside the cluster; its Lease is in the cluster.
#[rstest]
#[case::its_lease_has_expired("kubernetes.io/pvc-protection", lease(-3_600), "down")]
#[case::its_lease_is_renewed("kubernetes.io/pvc-protection", lease(-5), "alive")]
#[case::without_leader_election("kubernetes.io/pvc-protection", ReadResult::Absent, "unknown")]
// A provider may have taken over from a Karpenter in the cluster.
#[case::another_one_may_run_elsewhere("karpenter.sh/termination", lease(-3_600), "unknown")]
fn a_hosted_controller_is_judged_by_its_lease(
    #[case] finalizer: &str,
    #[case] lease: ReadResult<Lease>,
    #[case] expected: &str,
) {
    let entry = KNOWN_FINALIZERS.find(finalizer).unwrap();
    let workloads = ReadResult::Found(Vec::new());
    let seen = observed(&workloads, &[&lease]);
    let health = of_known(entry, &kind("PersistentVolumeClaim"), &seen, at(0));
    assert_eq!(name_of(&health), expected, "{health:?}");
}

/// The Lease of an earlier one stays behind when a provider runs another one.
#[rstest]
#[case::of_the_provider(None, "unknown")]
#[case::in_the_cluster(Some("hcloud-cloud-controller-manager"), "alive")]
#[case::without_a_leader(Some("cloud-controller-manager"), "down")]
fn an_old_lease_says_nothing_about_another_manager_of_a_cloud(
    #[case] name: Option<&str>,
    #[case] expected: &str,
) {
    let entry = KNOWN_FINALIZERS.find("service.kubernetes.io/load-balancer-cleanup");
    let manager = |name: &str| Workload {
        kind: "daemonset",
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
        desired: 1,
        ready: 1,
        images: vec![],
    };
    let workloads = ReadResult::Found(name.map(manager).into_iter().collect());
    let lease = lease(-3_600);
    let lease = lease.map(|lease| Lease {
        place: "kube-system/cloud-controller-manager".to_owned(),
        ..lease
    });
    let seen = observed(&workloads, &[&lease]);
    let health = of_known(entry.unwrap(), &kind("Service"), &seen, at(0));
    assert_eq!(name_of(&health), expected, "{health:?}");
}

#[test]
fn a_lease_that_stayed_behind_in_another_namespace_does_not_count() {
    let ReadResult::Found(mut workloads) = operator(1) else {
        unreachable!()
    };
    workloads[0].namespace = "autoscaling".to_owned();
    let left_behind = lease(-3_600);
    let workloads = ReadResult::Found(workloads);
    let seen = observed(&workloads, &[&left_behind]);
    let entry = KNOWN_FINALIZERS.find("finalizer.keda.sh").unwrap();
    let health = of_known(entry, &kind("ScaledObject"), &seen, at(0));
    let ControllerHealth::Alive(proof, _) = health else {
        panic!("{health:?}")
    };
    let pods = "deployment autoscaling/keda-operator: 1 of 1 pods ready";
    assert_eq!(proof, [pods]);
}

const BELAYER: &str = "belayer-system/belayer";
const APART: &str = "belayer-system/belayer-pod-recreation";

/// The kind, place and number of ready pods of each.
fn of_belayer(all: &[(&'static str, &str, i64)]) -> ReadResult<Vec<Workload>> {
    let workload = |(kind, place, ready): &(&'static str, &str, i64)| {
        let (namespace, name) = place.split_once('/').unwrap();
        Workload {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            desired: 1,
            ready: *ready,
            images: vec!["registry.invalid/belayer/belayer:0.1.0".to_owned()],
        }
    };
    ReadResult::Found(all.iter().map(workload).collect())
}

/// All of Belayer's workloads run the same image.
#[rstest]
#[case::its_deployment_is_down("belayer.dev/pod-recreation", Some(APART), &[BELAYER],
    &[("deployment", BELAYER, 1), ("deployment", APART, 0)], "down")]
#[case::the_other_deployment_is_down("belayer.dev/pod-recreation", Some(APART), &[BELAYER],
    &[("deployment", BELAYER, 0), ("deployment", APART, 1)], "alive")]
#[case::its_deployment_is_deleted("belayer.dev/pod-recreation", Some(APART), &[BELAYER],
    &[("deployment", BELAYER, 1)], "gone")]
#[case::a_single_deployment("belayer.dev/pod-recreation", Some(BELAYER), &[],
    &[("deployment", BELAYER, 1)], "alive")]
#[case::without_leases("belayer.dev/pod-recreation", None, &[],
    &[("deployment", BELAYER, 1), ("deployment", APART, 0)], "down")]
#[case::that_of_pod_finalizer_is_down("belayer.dev/pod-status", Some(BELAYER), &[APART],
    &[("deployment", BELAYER, 0), ("deployment", APART, 1)], "down")]
#[case::that_of_pod_finalizer_is_down_without_leases("belayer.dev/pod-status", None, &[],
    &[("deployment", APART, 1), ("deployment", BELAYER, 0)], "down")]
#[case::a_deployment_of_another_name("belayer.dev/pod-status", Some(BELAYER), &[APART],
    &[("deployment", "ops/rope", 1), ("deployment", APART, 0)], "alive")]
#[case::the_node_agent_remains("belayer.dev/pod-status", Some(BELAYER), &[],
    &[("daemonset", "belayer-node-agent/belayer-node-agent", 3)], "gone")]
fn the_deployments_of_belayer_are_told_apart(
    #[case] finalizer: &str,
    #[case] lease: Option<&str>,
    #[case] others: &[&str],
    #[case] workloads: &[(&'static str, &str, i64)],
    #[case] expected: &str,
) {
    let entry = KNOWN_FINALIZERS.find(finalizer).unwrap();
    let workloads = of_belayer(workloads);
    let seen = Observed {
        workloads: &workloads,
        leases: Vec::new(),
        recognized: Vec::new(),
        of_others: Vec::new(),
        driver: None,
        own: Some(OwnDeployment {
            lease,
            others: others.iter().copied().collect(),
        }),
    };
    let health = of_known(entry, &kind("Pod"), &seen, at(0));
    assert_eq!(name_of(&health), expected, "{health:?}");
    if let ControllerHealth::Gone(proof) = health {
        let says = "apart from other parts of Belayer (";
        assert!(proof[0].starts_with(says), "{proof:?}");
    }
}

#[rstest]
#[case::of_gke("networking.gke.io/neg-finalizer")]
#[case::karpenter_of_a_provider("karpenter.sh/termination")]
#[case::ack_of_eks("finalizers.s3.services.k8s.aws/Bucket")]
#[case::argo_cd_of_eks("resources-finalizer.argocd.argoproj.io")]
#[case::argo_cd_of_eks_by_propagation("resources-finalizer.argocd.argoproj.io/background")]
#[case::argo_cd_of_eks_with_hooks("post-delete-finalizer.argocd.argoproj.io/cleanup")]
#[case::openshift_with_a_hosted_control_plane(
    "ingresscontroller.operator.openshift.io/finalizer-ingresscontroller"
)]
#[case::snapshots_of_a_provider("snapshot.storage.kubernetes.io/volumesnapshot-bound-protection")]
fn the_absence_of_a_controller_that_may_run_elsewhere_proves_nothing(#[case] finalizer: &str) {
    let entry = KNOWN_FINALIZERS.find(finalizer).unwrap();
    let workloads = ReadResult::Found(vec![]);
    let seen = observed(&workloads, &[]);
    let health = of_known(entry, &kind("Application"), &seen, at(0));
    assert_eq!(name_of(&health), "unknown", "{health:?}");
}

#[rstest]
#[case(Some("keda-operator"), 0, "down")]
#[case(Some("keda-operator"), 1, "alive")]
#[case(Some("another-manager"), 1, "unknown")]
#[case(None, 1, "unknown")]
fn an_unknown_finalizer_is_judged_by_its_manager(
    #[case] manager: Option<&str>,
    #[case] ready: i64,
    #[case] expected: &str,
) {
    let workloads = operator(ready);
    let seen = observed(&workloads, &[]);
    assert_eq!(name_of(&of_manager(manager, &seen)), expected);
}

/// client-go names a manager after the binary, and many operators are called so.
#[rstest]
fn a_general_name_of_a_manager_is_no_controller(
    #[values("manager", "controller", "kustomize-controller")] manager: &str,
) {
    let ReadResult::Found(mut workloads) = operator(0) else {
        unreachable!()
    };
    manager.clone_into(&mut workloads[0].name);
    let workloads = ReadResult::Found(workloads);
    let seen = observed(&workloads, &[]);
    assert_eq!(name_of(&of_manager(Some(manager), &seen)), "unknown");
}

/// Some controller watches for the finalizer that a person set.
#[rstest]
#[case::workloads_are_readable(operator(1))]
#[case::workloads_are_unreadable(ReadResult::Unknown("not allowed".into()))]
fn a_tool_of_people_is_no_controller(
    #[case] workloads: ReadResult<Vec<Workload>>,
    #[values(
        "before-first-apply",
        "helm",
        "kubectl",
        "kubectl-client-side-apply",
        "kubectl-edit",
        "Terraform"
    )]
    manager: &str,
) {
    let seen = observed(&workloads, &[]);
    let ControllerHealth::Unknown { missing, .. } = of_manager(Some(manager), &seen) else {
        panic!("{manager} is no controller");
    };
    assert!(
        missing[0].contains("by a person or a script"),
        "{missing:?}"
    );
}
