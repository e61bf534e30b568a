use std::sync::Arc;

use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_holds::decision::Evidence as _;
use rstest::rstest;

use super::*;

const POD: &str = "belayer.dev/pod-status";
const RECREATION: &str = "belayer.dev/pod-recreation";
const WORKFLOW: &str = "belayer.dev/workflow-cleanup";
const PVC: &str = "belayer.dev/pvc-protection";
const KUBERNETES: &str = "kubernetes.io/pvc-protection";

fn pods() -> Resource {
    Resource::pods()
}

fn pvcs() -> Resource {
    Resource::pvcs()
}

fn everything() -> Purpose {
    Purpose::Everything(Order::of_the_admin())
}

fn unselected() -> Purpose {
    Purpose::Unselected(Order::of_the_admin())
}

fn off(holds: &[&'static str]) -> Purpose {
    Purpose::SwitchedOff(Order::of_the_admin(), holds.to_vec())
}

struct World {
    kind: Resource,
    finalizers: &'static [&'static str],
    selected: Selected,
    usage: Option<Usage>,
    seen: LogicalTime,
}

fn object(kind: Resource, finalizers: &'static [&'static str]) -> World {
    World {
        kind,
        finalizers,
        selected: Selected::Yes,
        usage: None,
        seen: LogicalTime::BEGINNING,
    }
}

impl World {
    fn listed(mut self, users: &[&str]) -> Self {
        self.usage = Some(Usage::Listed {
            users: users.iter().collect(),
            begun: LogicalTime::now(),
        });
        self
    }

    fn listed_too_early(mut self) -> Self {
        self = self.listed(&[]);
        self.seen = LogicalTime::now();
        self
    }

    fn list_failed(mut self) -> Self {
        self.usage = Some(Usage::Unknown("pods: answers 500".to_owned()));
        self
    }

    fn selected(mut self, selected: Selected) -> Self {
        self.selected = selected;
        self
    }

    /// Released holds with their evidence, kept holds, and whether to list the pods.
    fn verdict(&self, purpose: &Purpose) -> (Vec<(&'static str, &'static str)>, Vec<String>, bool) {
        let meta = ObjectMeta {
            finalizers: self.finalizers.iter().map(|f| Arc::from(*f)).collect(),
            ..ObjectMeta::new(
                ObjectKey::new("shop", "o"),
                Uid::new("u"),
                ResourceVersion::new(1),
            )
        };
        let verdict = decide(
            &View {
                kind: &self.kind,
                meta: &meta,
                seen: self.seen,
                selected: &|_| self.selected.clone(),
                usage: self.usage.as_ref(),
                recorded: None,
            },
            purpose,
        );
        let release = verdict.release.iter();
        (
            release.map(|(hold, why)| (*hold, why.name())).collect(),
            verdict.keep.into_iter().map(|kept| kept.hold).collect(),
            verdict.list_pods,
        )
    }
}

#[rstest]
#[case::row_1_foreign_finalizers_are_never_touched(object(pods(), &["z/z", "foregroundDeletion", KUBERNETES]), everything(), &[], &[], false)]
#[case::row_1_the_finalizer_of_kubernetes_is_never_removed(object(pvcs(), &[KUBERNETES]), everything(), &[], &[], false)]
#[case::row_2_a_hold_of_another_version_is_reported(object(pods(), &["belayer.dev/new"]), everything(), &[], &["belayer.dev/new"], false)]
#[case::row_2_only_if_every_hold_is_removed(object(pods(), &["belayer.dev/new"]), unselected(), &[], &[], false)]
#[case::row_3_a_selected_object_keeps_its_hold(object(pods(), &[POD]), unselected(), &[], &[], false)]
#[case::row_3_an_unselected_object_is_released(object(pods(), &["z/z", POD]).selected(Selected::No), unselected(), &[(POD, "Unselected")], &[], false)]
#[case::row_3_unknown_is_not_unselected(object(pods(), &[POD]).selected(Selected::Unknown("no".into())), unselected(), &[], &[POD], false)]
#[case::row_3_holds_of_a_running_component_stay(object(pods(), &[POD, WORKFLOW]), off(&[WORKFLOW]), &[(WORKFLOW, "SwitchedOff")], &[], false)]
#[case::row_4_a_pvc_that_kubernetes_protects_is_handed_over(object(pvcs(), &[KUBERNETES, PVC]), everything(), &[(PVC, "HandedOver")], &[], false)]
#[case::row_4_also_if_the_component_is_off(object(pvcs(), &[PVC, KUBERNETES]), off(&[PVC]), &[(PVC, "HandedOver")], &[], false)]
#[case::row_4_also_while_it_is_used(object(pvcs(), &[KUBERNETES, PVC]).listed(&["web-0"]), everything(), &[(PVC, "HandedOver")], &[], false)]
#[case::row_5_the_pods_are_listed_if_only_belayer_protects_a_pvc(object(pvcs(), &[PVC]), everything(), &[], &[], true)]
#[case::row_5_an_older_list_does_not_count(object(pvcs(), &[PVC]).listed_too_early(), everything(), &[], &[], true)]
#[case::row_6_a_pvc_in_use_keeps_its_hold(object(pvcs(), &[PVC]).listed(&["web-0"]), everything(), &[], &[PVC], false)]
#[case::row_6_a_failed_list_proves_nothing(object(pvcs(), &[PVC]).list_failed(), everything(), &[], &[PVC], false)]
#[case::row_6_also_if_the_component_is_off(object(pvcs(), &[PVC]).listed(&["web-0"]), off(&[PVC]), &[], &[PVC], false)]
#[case::row_7_an_unused_pvc_is_released(object(pvcs(), &[PVC]).listed(&[]), everything(), &[(PVC, "Unused")], &[], false)]
#[case::row_8_pods(object(pods(), &["z/z", POD]), everything(), &[(POD, "Drained")], &[], false)]
#[case::row_8_several_in_one_patch(object(pods(), &[POD, "z/z", WORKFLOW]), everything(), &[(POD, "Drained"), (WORKFLOW, "Drained")], &[], false)]
#[case::row_8_the_hold_of_pvc_protection_on_another_kind(object(pods(), &[PVC]), everything(), &[(PVC, "Drained")], &[], false)]
fn table(
    #[case] world: World,
    #[case] purpose: Purpose,
    #[case] expected_released: &[(&'static str, &'static str)],
    #[case] expected_kept: &[&str],
    #[case] expected_list: bool,
) {
    let (released, kept, lists) = world.verdict(&purpose);
    assert_eq!(released, expected_released);
    assert_eq!(kept, expected_kept);
    assert_eq!(lists, expected_list);
}

fn recreated(purpose: &Purpose, recorded: Option<&Recorded>) -> Verdict {
    let mut meta = ObjectMeta::new(
        ObjectKey::new("shop", "web"),
        Uid::new("u"),
        ResourceVersion::new(1),
    );
    meta.finalizers = Box::from([POD, RECREATION].map(Arc::from));
    meta.annotations = [(RECREATION_ANNOTATION, "web-1")].into_iter().collect();
    let view = View {
        kind: &pods(),
        meta: &meta,
        seen: LogicalTime::BEGINNING,
        selected: &|_| Selected::No,
        usage: None,
        recorded,
    };
    decide(&view, purpose)
}

/// R5: whatever the purpose, a record must name its pod before the pod loses its hold.
#[rstest]
fn r5_the_record_of_a_recreated_pod_is_read_first(
    #[values(everything(), unselected(), off(&[POD, RECREATION]))] purpose: Purpose,
) {
    let unread = recreated(&purpose, None);
    assert_eq!((unread.holds(), unread.read_record), (vec![POD], true));
    let unknown = Recorded::Unknown("answers 500".to_owned());
    let kept = recreated(&purpose, Some(&unknown));
    assert_eq!((kept.holds(), kept.keep.len()), (vec![POD], 1));
    let known = recreated(&purpose, Some(&Recorded::Yes));
    assert_eq!(
        (known.holds(), known.keep.len()),
        (vec![POD, RECREATION], 0)
    );
}
