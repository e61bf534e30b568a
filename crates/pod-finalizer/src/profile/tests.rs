use belayer_core::slim::Labels;
use rstest::rstest;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

fn profile(name: &str, label: &str) -> Profile {
    let requirement = Requirement::new(label, Operator::Exists).unwrap();
    Profile {
        name: name.into(),
        selector: Selector::new([requirement]),
        ..argo::profile()
    }
}

#[rstest]
#[case::only_the_second(&[("b", "")], "any", Some("second"))]
#[case::the_first_of_two(&[("a", ""), ("b", "")], "any", Some("first"))]
#[case::none(&[("c", "")], "any", None)]
#[case::never_in_the_system_namespace(&[("a", "")], "kube-system", None)]
fn a_pod_belongs_to_the_first_profile_that_selects_it(
    #[case] pod: &[(&str, &str)],
    #[case] namespace: &str,
    #[case] expected: Option<&str>,
) {
    let profiles = Profiles::new([profile("first", "a"), profile("second", "b")]).unwrap();
    let found = profiles
        .first_match(&labels(pod), namespace)
        .map(|found| &*found.name);
    assert_eq!(found, expected);
}

#[test]
fn a_profile_stays_in_its_namespaces() {
    let narrow = Profile {
        namespaces: Namespaces {
            include: Box::new(["a".into()]),
            exclude: Box::default(),
        },
        ..profile("narrow", "x")
    };
    let profiles = Profiles::new([narrow, profile("wide", "x")]).unwrap();
    let in_namespace = |ns| {
        profiles
            .first_match(&labels(&[("x", "")]), ns)
            .unwrap()
            .name
            .clone()
    };
    assert_eq!(&*in_namespace("a"), "narrow");
    assert_eq!(&*in_namespace("b"), "wide");
}

#[test]
fn the_labels_that_informers_keep() {
    let own = Profile {
        owner: Some(OwnerKind::new("batch", "v1", "Job", "jobs")),
        owner_finished: MatchLabels::new([("done", "yes")]).unwrap(),
        consumed: MatchLabels::new([("taken", "yes")]).unwrap(),
        ..profile("own", "app")
    };
    let jobs = own.owner.clone().unwrap();
    let profiles = Profiles::new([argo::profile(), own]).unwrap();
    let pod = [
        argo::COMPLETED_LABEL,
        argo::COMPONENT_LABEL,
        argo::WORKFLOW_LABEL,
        "app",
        "taken",
    ];
    assert_eq!(profiles.pod_labels(), pod.into());
    assert_eq!(profiles.owners(), [&jobs, &argo::workflow()].into());
    assert_eq!(profiles.owner_labels(&jobs), ["done"].into());
    assert_eq!(
        profiles.owner_labels(&argo::workflow()),
        [argo::COMPLETED_LABEL].into()
    );
}

#[test]
fn invalid_profiles_are_rejected() {
    assert_eq!(Profiles::new([]), Err(ProfilesError::Empty));
    let name: Arc<str> = "a".into();
    assert_eq!(
        Profiles::new([profile("a", "x"), profile("b", "x"), profile("a", "y")]),
        Err(ProfilesError::DuplicateName {
            index: 2,
            name: name.clone()
        })
    );
    let for_ever = Profile {
        owner: None,
        owner_status: OwnerStatus::None,
        consumed: MatchLabels::default(),
        ..profile("a", "x")
    };
    assert_eq!(
        Profiles::new([for_ever]),
        Err(ProfilesError::NothingReleases {
            index: 0,
            name: name.clone()
        })
    );
    let only = Operator::In(Box::new(["true".into()]));
    let selector = Selector::new([Requirement::new(argo::COMPLETED_LABEL, only).unwrap()]);
    let never = Profile {
        selector,
        ..profile("a", "x")
    };
    assert_eq!(
        Profiles::new([never]),
        Err(ProfilesError::AlwaysConsumed { index: 0, name })
    );
}
