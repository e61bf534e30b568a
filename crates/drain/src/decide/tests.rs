use std::sync::Arc;

use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_holds::decision::Evidence as _;
use rstest::rstest;

use super::*;

const POD: &str = "belayer.dev/pod-status";
const RECREATION: &str = "belayer.dev/pod-recreation";
const WORKFLOW: &str = "belayer.dev/workflow-cleanup";
const CLAIM: &str = "belayer.dev/pvc-protection";
const KUBERNETES: &str = "kubernetes.io/pvc-protection";

fn pods() -> Resource {
    Resource::pods()
}

fn claims() -> Resource {
    Resource::claims()
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
    look: Option<Look>,
    seen: LogicalTime,
}

fn object(kind: Resource, finalizers: &'static [&'static str]) -> World {
    World {
        kind,
        finalizers,
        selected: Selected::Yes,
        look: None,
        seen: LogicalTime::BEGINNING,
    }
}

impl World {
    fn looked(mut self, users: &[&str]) -> Self {
        self.look = Some(Look::Seen {
            users: users.iter().collect(),
            begun: LogicalTime::now(),
        });
        self
    }

    fn looked_too_early(mut self) -> Self {
        self = self.looked(&[]);
        self.seen = LogicalTime::now();
        self
    }

    fn looked_in_vain(mut self) -> Self {
        self.look = Some(Look::Failed("pods: answers 500".to_owned()));
        self
    }

    fn selected(mut self, selected: Selected) -> Self {
        self.selected = selected;
        self
    }

    /// What goes and on what evidence, what stays, whether to look.
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
                look: self.look.as_ref(),
                recorded: None,
            },
            purpose,
        );
        let release = verdict.release.iter();
        (
            release.map(|(hold, why)| (*hold, why.name())).collect(),
            verdict.keep.into_iter().map(|kept| kept.hold).collect(),
            verdict.look == Wanted::Yes,
        )
    }
}

#[rstest]
#[case::row_1_foreign_finalizers_are_never_touched(object(pods(), &["z/z", "foregroundDeletion", KUBERNETES]), everything(), &[], &[], false)]
#[case::row_1_kubernetes_hold_is_never_taken_off(object(claims(), &[KUBERNETES]), everything(), &[], &[], false)]
#[case::row_2_a_hold_of_another_version_is_left_and_told(object(pods(), &["belayer.dev/new"]), everything(), &[], &["belayer.dev/new"], false)]
#[case::row_2_and_is_none_of_a_smaller_purpose(object(pods(), &["belayer.dev/new"]), unselected(), &[], &[], false)]
#[case::row_3_what_is_selected_stays(object(pods(), &[POD]), unselected(), &[], &[], false)]
#[case::row_3_what_is_not_selected_goes(object(pods(), &["z/z", POD]).selected(Selected::No), unselected(), &[(POD, "Unselected")], &[], false)]
#[case::row_3_unknown_is_not_taken_for_unselected(object(pods(), &[POD]).selected(Selected::Unknown("no".into())), unselected(), &[], &[POD], false)]
#[case::row_3_a_component_that_is_on_keeps_its_holds(object(pods(), &[POD, WORKFLOW]), off(&[WORKFLOW]), &[(WORKFLOW, "SwitchedOff")], &[], false)]
#[case::row_4_a_claim_that_kubernetes_protects_is_handed_over(object(claims(), &[KUBERNETES, CLAIM]), everything(), &[(CLAIM, "HandedOver")], &[], false)]
#[case::row_4_also_where_the_component_is_off(object(claims(), &[CLAIM, KUBERNETES]), off(&[CLAIM]), &[(CLAIM, "HandedOver")], &[], false)]
#[case::row_4_also_while_it_is_used(object(claims(), &[KUBERNETES, CLAIM]).looked(&["web-0"]), everything(), &[(CLAIM, "HandedOver")], &[], false)]
#[case::row_5_a_claim_that_only_we_hold_is_looked_at(object(claims(), &[CLAIM]), everything(), &[], &[], true)]
#[case::row_5_a_look_from_before_is_no_look(object(claims(), &[CLAIM]).looked_too_early(), everything(), &[], &[], true)]
#[case::row_6_a_claim_in_use_is_left(object(claims(), &[CLAIM]).looked(&["web-0"]), everything(), &[], &[CLAIM], false)]
#[case::row_6_a_look_that_failed_proves_nothing(object(claims(), &[CLAIM]).looked_in_vain(), everything(), &[], &[CLAIM], false)]
#[case::row_6_also_where_the_component_is_off(object(claims(), &[CLAIM]).looked(&["web-0"]), off(&[CLAIM]), &[], &[CLAIM], false)]
#[case::row_7_a_claim_that_nothing_uses_goes(object(claims(), &[CLAIM]).looked(&[]), everything(), &[(CLAIM, "Unused")], &[], false)]
#[case::row_8_pods(object(pods(), &["z/z", POD]), everything(), &[(POD, "Drained")], &[], false)]
#[case::row_8_several_in_one_patch(object(pods(), &[POD, "z/z", WORKFLOW]), everything(), &[(POD, "Drained"), (WORKFLOW, "Drained")], &[], false)]
#[case::row_8_a_claims_hold_on_anything_else_keeps_no_data(object(pods(), &[CLAIM]), everything(), &[(CLAIM, "Drained")], &[], false)]
fn table(
    #[case] world: World,
    #[case] purpose: Purpose,
    #[case] goes: &[(&'static str, &'static str)],
    #[case] stays: &[&str],
    #[case] look: bool,
) {
    let (released, kept, looks) = world.verdict(&purpose);
    assert_eq!(released, goes);
    assert_eq!(kept, stays);
    assert_eq!(looks, look);
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
        look: None,
        recorded,
    };
    decide(&view, purpose)
}

/// R5: whatever the purpose, a record knows of its pod before the pod loses its hold.
#[rstest]
fn r5_the_record_of_a_recreated_pod_is_asked_first(
    #[values(everything(), unselected(), off(&[POD, RECREATION]))] purpose: Purpose,
) {
    let asks = recreated(&purpose, None);
    assert_eq!((asks.holds(), asks.ask_record), (vec![POD], Wanted::Yes));
    let unknown = Recorded::Unknown("answers 500".to_owned());
    let kept = recreated(&purpose, Some(&unknown));
    assert_eq!((kept.holds(), kept.keep.len()), (vec![POD], 1));
    let known = recreated(&purpose, Some(&Recorded::Yes));
    assert_eq!(
        (known.holds(), known.keep.len()),
        (vec![POD, RECREATION], 0)
    );
}
