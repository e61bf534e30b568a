use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;

use super::*;

mod driver;
mod leadership;
mod random;
mod reports;
mod server;
mod table;
mod watch;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[rstest]
#[case::the_defaults(15_000, 10_000, 2_000, None)]
#[case::the_deadline_is_the_duration(10_000, 10_000, 2_000, Some(TimingError::LeaseNotLonger))]
#[case::the_deadline_is_longer(10_000, 11_000, 2_000, Some(TimingError::LeaseNotLonger))]
#[case::no_second_attempt(15_000, 2_400, 2_000, Some(TimingError::DeadlineNotLonger))]
#[case::a_second_attempt(15_000, 2_401, 2_000, None)]
#[case::no_lease(0, 0, 2_000, Some(TimingError::LeaseTooShort))]
#[case::less_than_the_record_can_say(999, 500, 100, Some(TimingError::LeaseTooShort))]
#[case::without_a_pause(15_000, 10_000, 0, Some(TimingError::RetryTooShort))]
#[case::a_day(86_400_000, 10_000, 2_000, None)]
#[case::more_than_a_day(86_400_001, 10_000, 2_000, Some(TimingError::LeaseTooLong))]
#[case::for_ever(1_000_000_000, 10_000, 2_000, Some(TimingError::LeaseTooLong))]
fn durations_are_checked_as_in_client_go(
    #[case] lease: u64,
    #[case] deadline: u64,
    #[case] retry: u64,
    #[case] expected: Option<TimingError>,
) {
    let millis = Duration::from_millis;
    let timing = Timing::new(millis(lease), millis(deadline), millis(retry));
    assert_eq!(timing.err(), expected);
}

#[test]
fn the_recorded_lease_duration_is_rounded_up() {
    let timing = Timing::new(
        Duration::from_millis(1_500),
        seconds(1),
        Duration::from_millis(200),
    )
    .unwrap();
    assert_eq!(timing.recorded_seconds(), 2);
    assert_eq!(Timing::default().recorded_seconds(), 15);
}

#[test]
fn a_record_is_written_as_client_go_writes_it_and_read_again() {
    let time: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
    let record = Record {
        holder: "a_1".into(),
        lease_seconds: 15,
        acquired: Some(time),
        renewed: Some(time),
        transitions: 3,
    };
    let over = Version {
        uid: "u".into(),
        resource_version: "7".into(),
    };
    let body = record.patch_body(&over);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&body).unwrap(),
        serde_json::json!({
            "metadata": { "uid": "u", "resourceVersion": "7" },
            "spec": {
                "holderIdentity": "a_1",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-02T03:04:05.678901Z",
                "renewTime": "2026-01-02T03:04:05.678901Z",
                "leaseTransitions": 3,
            },
        })
    );
    let read = Lease::read(body.as_bytes()).unwrap();
    assert_eq!((read.version, read.record.holder.as_str()), (over, "a_1"));
    assert_eq!(read.record.transitions, 3);
}

#[rstest]
#[case::no_spec(r#"{"metadata":{"uid":"u","resourceVersion":"1"}}"#)]
#[case::null_spec(r#"{"metadata":{"uid":"u","resourceVersion":"1"},"spec":null}"#)]
#[case::nulls(r#"{"metadata":{"uid":"u","resourceVersion":"1"},"spec":{"holderIdentity":null,"renewTime":null}}"#)]
#[case::no_time(r#"{"metadata":{"uid":"u","resourceVersion":"1"},"spec":{"renewTime":"soon","leaseTransitions":-4,"more":{}}}"#)]
fn an_invalid_lease_of_another_program_can_be_acquired(#[case] body: &str) {
    let read = Lease::read(body.as_bytes()).unwrap();
    assert_eq!(read.record, Record::default());
}

#[test]
fn identities_contain_the_host_and_are_unique() {
    assert!(identity("node-1").starts_with("node-1_"));
    assert!(identity("").starts_with("unknown-host_"));
    assert_ne!(identity("a"), identity("a"));
}
