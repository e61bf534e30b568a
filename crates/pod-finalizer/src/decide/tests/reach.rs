//! Which holds a release removes.

use rstest::rstest;

use super::super::*;
use super::{now, pod};
use belayer_holds::decision::Evidence as _;

#[rstest]
#[case::of_a_first_pod(pod().held().admin_asked(), Reach::AllHolds)]
#[case::of_a_recreated_pod(pod().held().admin_asked().recreated(), Reach::OwnHold)]
#[case::in_a_namespace_that_ends(
    pod().held().recreated().namespace_deleting().namespace_confirmed(),
    Reach::AllHolds
)]
fn row_02_leaves_the_hold_of_a_recreated_pod_to_pod_recreation(
    #[case] case: super::Case,
    #[case] expected: Reach,
) {
    let decision = decide(&case.0, now());
    let Some(Write::Release(evidence)) = decision.write else {
        panic!("no release: {decision:?}");
    };
    assert_eq!(evidence.reach(), expected);
}
