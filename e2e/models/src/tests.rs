use rstest::rstest;
use stateright::Model as _;

use crate::drain::{self, Draining};
use crate::kit::{Explored, explore, has_cycle};
use crate::pods::{self, Pods};
use crate::pvcs::{self, Pvcs};
use crate::record::{self, Recreation};
use crate::small;

fn pods() -> Pods {
    Pods {
        names: 1,
        replicas: 1,
        workflows: 2,
        retries: 1,
        crashes: 0,
        policy: true,
        fault: None,
    }
}

fn pvcs() -> Pvcs {
    Pvcs {
        pods: 1,
        replicas: 1,
        pvcs: 2,
        created: 1,
        crashes: 0,
        fault: None,
    }
}

fn recreation() -> Recreation {
    Recreation {
        replicas: 1,
        retries: 1,
        deletions: 1,
        others: 1,
        wipe: true,
        crashes: 1,
        fault: None,
    }
}

fn draining() -> Draining {
    Draining {
        pods: 1,
        replicas: 1,
        created: 1,
        protected: false,
        fault: None,
    }
}

/// A model with a planted fault violates this property.
fn finds<M: Explored>(model: M, wanted: &'static str) {
    let found = explore(model, 1, Some(wanted));
    let names: Vec<_> = found.violations.iter().map(|(name, _)| *name).collect();
    assert!(
        names.contains(&wanted),
        "{} states: {names:?}",
        found.states
    );
}

/// Row *model checking*.
#[test]
fn proof_no_small_model_violates_a_property() {
    for (name, bounds, run) in small() {
        let found = run(2);
        assert_eq!(found.violations, [], "{name}: {bounds}");
        assert!(found.states > 1_000, "{name}: only {} states", found.states);
    }
}

/// Otherwise "whenever Belayer has nothing left to do" might never come.
#[test]
fn proof_every_behaviour_ends() {
    assert!(!has_cycle(&pods()));
    assert!(!has_cycle(&pvcs()));
    assert!(!has_cycle(&recreation()));
    assert!(!has_cycle(&draining()));
}

#[rstest]
#[case(pods::Fault::OwnerByName, "RESULTS")]
#[case(pods::Fault::EarlyRead, "RESULTS")]
#[case(pods::Fault::BarePatch, "IDENTITY")]
#[case(pods::Fault::UnknownIsAbsent, "RESULTS")]
#[case(pods::Fault::EndedIsConsumed, "RESULTS")]
#[case(pods::Fault::OwnerDeletionIgnored, "LIVENESS")]
fn proof_a_planted_fault_of_pod_finalizer_is_found(
    #[case] fault: pods::Fault,
    #[case] property: &'static str,
) {
    let fault = Some(fault);
    finds(Pods { fault, ..pods() }, property);
}

#[rstest]
#[case(pvcs::Fault::EarlyRead, "IN-USE")]
#[case(pvcs::Fault::StoreIsProof, "IN-USE")]
#[case(pvcs::Fault::OldStore, "IN-USE")]
#[case(pvcs::Fault::BarePatch, "IDENTITY")]
#[case(pvcs::Fault::NoRecheck, "LIVENESS")]
fn proof_a_planted_fault_of_pvc_protection_is_found(
    #[case] fault: pvcs::Fault,
    #[case] property: &'static str,
) {
    let fault = Some(fault);
    finds(Pvcs { fault, ..pvcs() }, property);
}

#[rstest]
#[case(record::Fault::DeleteByName, "IDENTITY")]
#[case(record::Fault::NoCompare, "DECLARED")]
#[case(record::Fault::NoReservation, "ONE-POD")]
#[case(record::Fault::ReleasedEarly, "RAN-ONCE")]
#[case(record::Fault::StoreIsProof, "ENDS")]
#[case(record::Fault::NoBudget, "ONE-POD")]
#[case(record::Fault::DeletedBeforeRecord, "NO-LOSS")]
#[case(record::Fault::WipeByName, "WIPE")]
fn proof_a_planted_fault_of_pod_recreation_is_found(
    #[case] fault: record::Fault,
    #[case] property: &'static str,
) {
    let mut model = recreation();
    model.fault = Some(fault);
    if fault == record::Fault::StoreIsProof {
        // One leader is behind the other.
        model = Recreation {
            replicas: 2,
            deletions: 0,
            others: 0,
            wipe: false,
            crashes: 0,
            ..model
        };
    }
    finds(model, property);
}

#[rstest]
#[case(drain::Fault::NoSettle, "DRAINED")]
#[case(drain::Fault::GateIgnored, "DRAINED")]
#[case(drain::Fault::OthersToo, "FOREIGN")]
#[case(drain::Fault::EarlyList, "IN-USE")]
#[case(drain::Fault::BarePatch, "IDENTITY")]
#[case(drain::Fault::OnePass, "DRAINED")]
fn proof_a_planted_fault_of_drain_is_found(
    #[case] fault: drain::Fault,
    #[case] property: &'static str,
) {
    let fault = Some(fault);
    finds(
        Draining {
            fault,
            ..draining()
        },
        property,
    );
}

#[test]
fn a_model_starts_with_one_state() {
    assert_eq!(pods().init_states().len(), 1);
    assert_eq!(recreation().init_states().len(), 1);
}
