use rstest::rstest;

use super::*;

fn workload(place: &str, image: &str) -> Workload {
    let (namespace, name) = place.split_once('/').unwrap();
    Workload {
        kind: "deployment",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        desired: 1,
        ready: 1,
        images: vec![
            image.to_owned(),
            "registry.k8s.io/sig-storage/csi-attacher:v4".to_owned(),
        ],
    }
}

/// Workloads as real drivers deploy them.
#[rstest]
#[case::ebs(
    "ebs.csi.aws.com",
    "kube-system/ebs-csi-controller",
    "public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver:v1",
    true
)]
#[case::efs_is_not_ebs(
    "ebs.csi.aws.com",
    "kube-system/efs-csi-controller",
    "public.ecr.aws/efs-csi-driver/amazon/aws-efs-csi-driver:v2",
    false
)]
#[case::by_the_finalizer_alone(
    "ebs-csi-aws-com",
    "kube-system/ebs-csi-controller",
    "driver:1",
    true
)]
#[case::azure_disk(
    "disk.csi.azure.com",
    "kube-system/csi-azuredisk-controller",
    "mcr.microsoft.com/oss/kubernetes-csi/azuredisk-csi:v1",
    true
)]
#[case::azure_file(
    "disk.csi.azure.com",
    "kube-system/csi-azurefile-controller",
    "mcr.microsoft.com/oss/kubernetes-csi/azurefile-csi:v1",
    false
)]
#[case::google(
    "pd.csi.storage.gke.io",
    "gce-pd-csi-driver/csi-gce-pd-controller",
    "gcp-compute-csi:v1",
    true
)]
#[case::a_short_word_within_another("pd.csi.storage.gke.io", "web/httpd", "httpd:2", false)]
#[case::longhorn_by_its_namespace(
    "driver.longhorn.io",
    "longhorn-system/csi-attacher",
    "longhornio/csi-attacher:v4",
    true
)]
#[case::vsphere(
    "csi.vsphere.vmware.com",
    "vmware-system-csi/vsphere-csi-controller",
    "csi-vsphere:v3",
    true
)]
#[case::hetzner_by_its_image(
    "csi.hetzner.cloud",
    "kube-system/hcloud-csi-controller",
    "docker.io/hetznercloud/hcloud-csi-driver:v2",
    true
)]
#[case::block_devices_of_rook(
    "rook-ceph.rbd.csi.ceph.com",
    "rook-ceph/csi-rbdplugin-provisioner",
    "quay.io/cephcsi/cephcsi:v3",
    true
)]
#[case::file_systems_of_rook(
    "rook-ceph.rbd.csi.ceph.com",
    "rook-ceph/csi-cephfsplugin-provisioner",
    "quay.io/cephcsi/cephcsi:v3",
    false
)]
#[case::only_the_registry(
    "k8s.example.com",
    "default/csi-controller",
    "k8s.example.com/driver:1",
    false
)]
#[case::only_general_words("csi.io", "default/csi-controller", "csi:1", false)]
fn the_words_of_a_driver_tie_its_sidecars(
    #[case] driver: &str,
    #[case] place: &str,
    #[case] image: &str,
    #[case] expected: bool,
) {
    let driver = Driver(driver.to_owned());
    let its = Drivers::default().is_of(&workload(place, image), &driver, &[]);
    assert_eq!(its, expected);
}

/// The name in a command takes precedence over words, and so does a holder of the Lease.
#[rstest]
#[case::its_name("org.democratic-csi.nfs", "storage/democratic-csi-controller", true)]
#[case::the_name_of_another_driver(
    "org.democratic-csi.iscsi",
    "storage/democratic-csi-controller",
    false
)]
#[case::words_of_two_drivers("nfs.csi.example.com", "kube-system/csi-nfs-controller", false)]
#[case::the_holder_of_its_lease("dobs.csi.digitalocean.com", "kube-system/csi-do-controller", true)]
#[case::the_holder_in_another_namespace(
    "dobs.csi.digitalocean.com",
    "other/csi-do-controller",
    false
)]
fn what_names_a_driver_counts_more_than_words(
    #[case] driver: &str,
    #[case] place: &str,
    #[case] expected: bool,
) {
    let names = [
        "org.democratic-csi.nfs",
        "org.democratic-csi.iscsi",
        "nfs.csi.k8s.io",
        "nfs.csi.example.com",
    ];
    let command = BTreeSet::from([hyphenated("org.democratic-csi.nfs")]);
    let drivers = Drivers {
        installed: Some(ReadResult::Found(names.map(str::to_owned).into())),
        named: [("storage/democratic-csi-controller".to_owned(), command)].into(),
        ..Drivers::default()
    };
    let lease = ReadResult::Found(Lease {
        place: "kube-system/external-attacher-leader-dobs-csi-digitalocean-com".to_owned(),
        holder: "csi-do-controller-0".to_owned(),
        renewed: None,
        seconds: 15,
    });
    let driver = Driver(driver.to_owned());
    let its = drivers.is_of(&workload(place, "driver:1"), &driver, &[&lease]);
    assert_eq!(its, expected);
}

#[rstest]
#[case::a_flag("--drivername=rbd.csi.ceph.com", true)]
#[case::a_socket("unix:///var/lib/kubelet/plugins/rbd.csi.ceph.com/csi.sock", true)]
#[case::part_of_another_name("--drivername=rook-ceph.rbd.csi.ceph.com", false)]
#[case::no_name("--leader-election", false)]
fn a_command_names_a_driver(#[case] word: &str, #[case] expected: bool) {
    let container = Container {
        args: vec![word.to_owned()],
        ..Container::default()
    };
    let driver = hyphenated("rbd.csi.ceph.com");
    assert_eq!(names(&container).any(|name| name == driver), expected);
}
