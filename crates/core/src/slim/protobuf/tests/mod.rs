//! Both decoders give the same slim struct for an object, and no input causes a panic.

mod messages;
mod model;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::damage::{Edit, damaged};
use crate::http::ApiError;
use crate::informer::{Change, Decoder, JsonDecoder, ProtobufDecoder, WatchEvent};
use crate::object::ResourceVersion;
use crate::slim::{ContainerSet, Keep, OwnerMeta, Phase, Pod};
use messages::{PodMessage, enveloped, frame};
use model::ModelPod;

fn context() -> DecodeContext {
    DecodeContext {
        keep: Keep::nothing()
            .labels(["app", "gone"])
            .annotations(["example.com/release"])
            .annotations_if_created_by("kubelet", ["example.com/parent"]),
        ..DecodeContext::default()
    }
}

/// As an informer decodes it.
fn informer() -> DecodeContext {
    DecodeContext {
        keep: context().keep.finalizers(["ours.dev/hold"]),
        ..DecodeContext::default()
    }
}

/// About how many bytes a pod takes in memory.
fn resident(pod: &Pod) -> usize {
    let shared = |texts: &[Arc<str>]| texts.iter().map(|text| text.len() + 48).sum::<usize>();
    let meta = &pod.meta;
    let owner = meta.controller.as_deref().map_or(0, |owner| {
        shared(&[
            owner.api_version.clone(),
            owner.kind.clone(),
            owner.name.clone(),
        ]) + owner.uid.as_str().len()
    });
    let pairs = meta.labels.iter().chain(meta.annotations.iter());
    let pairs = pairs.map(|(_, value)| value.len() + 48).sum::<usize>();
    let texts = [&pod.node_name, &pod.reason, &pod.message().cloned()];
    let texts = texts.map(|text| text.as_ref().map_or(0, |text| text.len() + 48));
    let containers = pod.containers().iter();
    let containers = containers.map(|one| one.name.len() + 48 + size_of_val(one));
    let members = match pod.shutdown.as_deref().map(|of| &of.container_set) {
        Some(ContainerSet::Of(members)) => shared(members),
        _ => 0,
    };
    shared(&meta.finalizers)
        + owner
        + pairs
        + texts.iter().sum::<usize>()
        + shared(&pod.pvcs)
        + shared(&pod.ephemeral_pvcs)
        + containers.sum::<usize>()
        + members
}

fn decoded_as_by_an_informer(model: &ModelPod) -> Result<Pod, TestCaseError> {
    let list = json!({ "metadata": { "resourceVersion": "5" }, "items": [model.json()] });
    let mut json = JsonDecoder::<Pod>::new(informer())
        .decode_page(&list.to_string().into())
        .unwrap();
    let event = frame("ADDED", &enveloped("Pod", &model.message()));
    let protobuf = ProtobufDecoder::<Pod>::new(informer()).decode_watch_event(&event);
    match (json.items.remove(0), protobuf) {
        (Ok(json), WatchEvent::Added(protobuf)) => {
            prop_assert_eq!(&json, &protobuf);
            Ok(json)
        }
        (Err(_), WatchEvent::Bad(_)) => Err(TestCaseError::reject("without a name")),
        other => Err(TestCaseError::fail(format!("{other:?}"))),
    }
}

fn protobuf() -> ProtobufDecoder<Pod> {
    ProtobufDecoder::new(context())
}

fn by_json(model: &ModelPod) -> Result<Pod, DecodeError> {
    let text = model.json().to_string();
    JsonDecoder::<Pod>::new(context()).decode_object(text.as_bytes())
}

fn by_protobuf(model: &ModelPod) -> Result<Pod, DecodeError> {
    let bytes = enveloped("Pod", &model.message());
    protobuf().decode_object(&bytes)
}

fn a_pod() -> ModelPod {
    ModelPod {
        name: "build-1".into(),
        namespace: "ci".into(),
        uid: "0a1b".into(),
        resource_version: "42".into(),
        ..ModelPod::default()
    }
}

#[test]
fn a_bare_pod_is_read() {
    let pod = by_protobuf(&a_pod()).unwrap();
    assert_eq!(pod.meta.key.to_string(), "ci/build-1");
    assert_eq!(pod.meta.uid.as_str(), "0a1b");
    assert_eq!(pod.meta.resource_version, ResourceVersion::new(42));
    assert_eq!(pod.phase, Phase::Pending);
    assert_eq!(pod, by_json(&a_pod()).unwrap());
}

#[rstest]
#[case::name(ModelPod { name: String::new(), ..a_pod() }, "metadata.name is missing")]
#[case::uid(ModelPod { uid: String::new(), ..a_pod() }, "metadata.uid is missing")]
#[case::version(ModelPod { resource_version: String::new(), ..a_pod() }, "metadata.resourceVersion is missing")]
#[case::strange_version(ModelPod { resource_version: "new".into(), ..a_pod() }, "invalid metadata.resourceVersion: \"new\"")]
fn invalid_objects_are_refused_as_in_json(#[case] model: ModelPod, #[case] why: &str) {
    assert_eq!(by_protobuf(&model).unwrap_err().to_string(), why);
    assert_eq!(by_json(&model).unwrap_err().to_string(), why);
}

#[test]
fn a_watch_event_has_its_type() {
    let object = enveloped("Pod", &a_pod().message());
    let event = |event: &str| protobuf().decode_watch_event(&frame(event, &object));
    assert!(matches!(event("ADDED"), WatchEvent::Added(pod) if pod.meta.key.name() == "build-1"));
    assert!(matches!(event("MODIFIED"), WatchEvent::Modified(_)));
    assert!(matches!(event("DELETED"), WatchEvent::Deleted(_)));
    assert!(
        matches!(event("RENAMED"), WatchEvent::Bad(bad) if bad.why.to_string() == "invalid type: \"RENAMED\"")
    );
}

#[rstest]
#[case::in_between(&[], false)]
#[case::at_the_end_of_a_streaming_list(&[("k8s.io/initial-events-end", "true")], true)]
#[case::not_yet_at_the_end(&[("k8s.io/initial-events-end", "false")], false)]
#[case::with_another_annotation(&[("example.org/x", "true")], false)]
fn a_bookmark_has_a_version_and_nothing_else(
    #[case] annotations: &[(&str, &str)],
    #[case] ends: bool,
) {
    let mut message = PodMessage::default();
    let meta = message.metadata.get_or_insert_default();
    meta.resource_version = Some("77".into());
    let pairs = annotations.iter();
    meta.annotations = pairs.map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let frame = frame("BOOKMARK", &enveloped("Pod", &message));
    let WatchEvent::Bookmark {
        resource_version,
        initial_events_end,
    } = protobuf().decode_watch_event(&frame)
    else {
        panic!("not a bookmark");
    };
    assert_eq!(resource_version, ResourceVersion::new(77));
    assert_eq!(initial_events_end, ends);
}

fn status() -> (messages::StatusMessage, serde_json::Value) {
    let message = messages::StatusMessage {
        message: Some("too old resource version: 5 (90)".into()),
        reason: Some("Expired".into()),
        code: Some(410),
        details: Some(messages::DetailsMessage {
            name: Some("a".into()),
            group: Some("g".into()),
            kind: Some("pods".into()),
            causes: vec![messages::CauseMessage {
                reason: Some("FieldValueInvalid".into()),
                message: Some("no".into()),
                field: Some("metadata.uid".into()),
            }],
            retry_after_seconds: Some(3),
            uid: Some("u".into()),
        }),
    };
    let json = json!({
        "kind": "Status", "code": 410, "reason": "Expired",
        "message": "too old resource version: 5 (90)",
        "details": {
            "name": "a", "group": "g", "kind": "pods", "uid": "u", "retryAfterSeconds": 3,
            "causes": [{ "reason": "FieldValueInvalid", "message": "no", "field": "metadata.uid" }],
        },
    });
    (message, json)
}

#[test]
fn a_status_is_the_same_error_in_both_formats() {
    let (message, json) = status();
    let bytes = enveloped("Status", &message);
    let error = ApiError::from_status(&bytes).unwrap();
    assert_eq!(
        error,
        ApiError::from_status(json.to_string().as_bytes()).unwrap()
    );
    assert_eq!(error.retry_after, Some(std::time::Duration::from_secs(3)));
    let event = protobuf().decode_watch_event(&frame("ERROR", &bytes));
    assert!(matches!(event, WatchEvent::Error(event) if *event == error));
}

#[test]
fn an_object_is_not_a_status() {
    assert_eq!(
        ApiError::from_status(&enveloped("Pod", &a_pod().message())),
        None
    );
}

#[test]
fn a_bad_item_of_a_page_does_not_affect_the_others() {
    let bad = ModelPod {
        resource_version: "x".into(),
        ..a_pod()
    };
    let list = messages::PodListMessage {
        metadata: Some(messages::ListMetaMessage {
            resource_version: Some("99".into()),
            continue_token: Some("more".into()),
            remaining_item_count: Some(7),
        }),
        items: vec![a_pod().message(), bad.message(), a_pod().message()],
    };
    let page = protobuf()
        .decode_page(&enveloped("PodList", &list).into())
        .unwrap();
    assert_eq!(page.resource_version, ResourceVersion::new(99));
    assert_eq!(page.continue_token.as_deref(), Some("more"));
    assert_eq!(page.remaining, Some(7));
    let [Ok(_), Err(bad), Ok(_)] = &page.items[..] else {
        panic!("{:?}", page.items);
    };
    assert_eq!(bad.key.as_ref().unwrap().to_string(), "ci/build-1");
    assert_eq!(bad.change, Some(Change::Present));
}

#[rstest]
#[case::another_kind(enveloped("Pod", &a_pod().message()))]
#[case::without_metadata(enveloped("PodList", &messages::PodListMessage::default()))]
#[case::nothing(Vec::new())]
#[case::json(b"{}".to_vec())]
#[case::the_magic_alone(MAGIC.to_vec())]
fn an_invalid_list_is_not_taken_for_an_empty_one(#[case] bytes: Vec<u8>) {
    assert!(protobuf().decode_page(&Bytes::from(bytes)).is_err());
}

#[test]
fn a_truncated_event_still_identifies_its_object() {
    let object = enveloped("Pod", &a_pod().message());
    let whole = frame("DELETED", &object);
    // All but the last bytes of the spec: the metadata comes first.
    let WatchEvent::Bad(bad) = protobuf().decode_watch_event(&whole[..whole.len() - 3]) else {
        panic!("decoded a truncated object");
    };
    assert_eq!(bad.key.unwrap().to_string(), "ci/build-1");
    assert_eq!(bad.uid.unwrap().as_str(), "0a1b");
    assert_eq!(bad.change, Some(Change::Gone));
}

#[test]
fn invalid_utf8_is_decoded_as_in_the_json_of_the_server() {
    let mut bytes = enveloped(
        "Pod",
        &ModelPod {
            uid: "@@".into(),
            ..a_pod()
        }
        .message(),
    );
    let at = bytes.windows(2).position(|two| two == b"@@").unwrap();
    bytes[at] = 0xff;
    let pod = protobuf().decode_object(&bytes).unwrap();
    assert_eq!(pod.meta.uid.as_str(), "\u{fffd}@");
}

#[test]
fn a_field_of_another_type_is_named_in_the_error() {
    // The metadata as a number.
    let error = Pod::from_protobuf(&[0x08, 0x01], &context()).unwrap_err();
    assert_eq!(error.to_string(), "metadata is encoded as a varint");
}

#[test]
fn equal_strings_are_shared() {
    let context = context();
    let read = |name: &str| {
        let model = ModelPod {
            name: name.into(),
            node_name: "node-7".into(),
            ..a_pod()
        };
        Pod::from_protobuf(&model.message().encode_to_vec(), &context).unwrap()
    };
    let (one, other) = (read("a").node_name.unwrap(), read("b").node_name.unwrap());
    assert!(Arc::ptr_eq(&one, &other));
}

#[test]
fn t3_many_finalizers_are_shortened_and_every_change_is_seen() {
    let read = |finalizers: &[String]| {
        let model = ModelPod {
            finalizers: finalizers.to_vec(),
            ..a_pod()
        };
        let whole = by_protobuf(&model).unwrap();
        assert_eq!(whole.meta.finalizers.len(), finalizers.len());
        assert!(!whole.meta.is_shortened());
        decoded_as_by_an_informer(&model).unwrap()
    };
    let mut finalizers: Vec<_> = (0..5000).map(|n| format!("theirs.dev/{n}")).collect();
    finalizers.insert(2500, "ours.dev/hold".to_owned());
    let pod = read(&finalizers);
    assert!(pod.meta.is_shortened() && pod.meta.has_finalizer("ours.dev/hold"));
    assert_eq!(pod.meta.finalizers.len(), 2);
    assert!(!pod.meta.differs(&read(&finalizers).meta));
    finalizers.swap(0, 1);
    assert!(pod.meta.differs(&read(&finalizers).meta));
    finalizers.remove(2500);
    let pod = read(&finalizers);
    assert!(pod.meta.is_shortened() && !pod.meta.has_finalizer("ours.dev/hold"));
    // A few are kept as they are.
    let pod = read(&finalizers[..20]);
    assert_eq!(pod.meta.finalizers.len(), 20);
}

#[test]
fn t3_a_pod_with_very_many_pvcs_may_use_any() {
    let of = |count: usize, source: fn(usize) -> model::Source| {
        let volumes = (0..count).map(|n| (format!("volume-{n}"), source(n)));
        let model = ModelPod {
            volumes: volumes.collect(),
            ..a_pod()
        };
        decoded_as_by_an_informer(&model).unwrap()
    };
    let pvc = |n| model::Source::Pvc(format!("a-claim-of-the-usual-length-{n:05}"));
    assert!(!of(100, pvc).may_use_any_pvc());
    assert_eq!(of(100, pvc).pvcs.len(), 100);
    assert!(of(500, pvc).may_use_any_pvc());
    assert!(of(500, |_| model::Source::Ephemeral).may_use_any_pvc());
    let longest = of(1, |_| model::Source::Pvc("x".repeat(253)));
    assert_eq!(longest.pvcs[0].len(), 253);
    let too_long = of(1, |_| model::Source::Pvc("x".repeat(254)));
    assert!(!crate::object::path::is_possible_name(&too_long.pvcs[0]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a tenant writes into a pod, it takes a limited amount of memory.
    #[test]
    fn t3_no_field_of_a_pod_is_kept_beyond_its_limit(model in model::any_large_pod()) {
        let pod = decoded_as_by_an_informer(&model)?;
        let resident = resident(&pod);
        prop_assert!(resident < 96 << 10, "{resident} bytes: {pod:?}");
        prop_assert!(pod.meta.has_finalizer("ours.dev/hold"));
        let message = pod.message().map_or("", |message| message);
        prop_assert!(model.message.starts_with(message) && message.len() <= 1024);
        for pvc in &model.volumes {
            if let model::Source::Pvc(name) = &pvc.1 && !name.is_empty() && name.len() <= 253 {
                let is_kept = pod.pvcs.iter().any(|have| **have == **name);
                prop_assert!(is_kept || pod.may_use_any_pvc(), "{name}");
            }
        }
    }
}

proptest! {
    #[test]
    fn both_decoders_give_the_same_pod(model in model::any_pod()) {
        match (by_json(&model), by_protobuf(&model)) {
            (Ok(json), Ok(protobuf)) => prop_assert_eq!(json, protobuf),
            (Err(json), Err(protobuf)) => prop_assert_eq!(json.to_string(), protobuf.to_string()),
            (json, protobuf) => prop_assert!(false, "{:?}\n{:?}", json, protobuf),
        }
    }

    #[test]
    fn both_decoders_give_the_same_metadata(model in model::any_pod()) {
        let json = JsonDecoder::<OwnerMeta>::new(context())
            .decode_object(model.json().to_string().as_bytes());
        let bytes = enveloped("PartialObjectMetadata", &model.message());
        let protobuf = ProtobufDecoder::<OwnerMeta>::new(context()).decode_object(&bytes);
        prop_assert_eq!(json.ok(), protobuf.ok());
    }

    #[test]
    fn any_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = protobuf().decode_watch_event(&bytes);
        let _ = protobuf().decode_object(&bytes);
        let _ = Pod::from_protobuf(&bytes, &context());
        let _ = ApiError::from_status(&bytes);
        let with_magic: Bytes = [&MAGIC[..], &bytes].concat().into();
        let _ = protobuf().decode_page(&with_magic);
        let _ = protobuf().decode_watch_event(&frame("ADDED", &with_magic));
        let _ = ApiError::from_status(&with_magic);
    }

    #[test]
    fn damaged_events_do_not_affect_others(
        model in model::any_pod(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = frame("MODIFIED", &enveloped("Pod", &model.message()));
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = protobuf().decode_watch_event(&bytes);
        let _ = protobuf().decode_watch_event(&bytes[..cut.index(bytes.len())]);
    }

    /// The same for whatever a fuzzer makes of an event, of a list item and of a status.
    #[test]
    fn fuzz_damaged_protobuf_is_decoded_or_bad(
        model in model::any_pod(),
        edits in proptest::collection::vec(any::<Edit>(), 1..8),
    ) {
        let pod = enveloped("Pod", &model.message());
        let _ = protobuf().decode_watch_event(&damaged(&frame("MODIFIED", &pod), &edits));
        let damaged = damaged(&pod, &edits);
        let _ = protobuf().decode_object(&damaged);
        let _ = Pod::from_protobuf(&damaged, &context());
        let _ = ApiError::from_status(&damaged);
        let _ = protobuf().decode_page(&Bytes::from(damaged));
    }

    /// The decoded part of a frame cannot be larger than the frame, whatever lengths it claims.
    #[test]
    fn claimed_lengths_allocate_nothing(length in any::<u64>(), number in 1_u32..40) {
        let mut bytes = Vec::new();
        prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut bytes);
        prost::encoding::encode_varint(length.max(1), &mut bytes);
        let mut fields = Fields::of(&bytes);
        prop_assert!(fields.next().unwrap().is_err());
        prop_assert!(fields.next().is_none());
        let mut broken = Fields::of_broken(&bytes);
        prop_assert_eq!(broken.next().unwrap().unwrap().value, Value::Bytes(&[]));
    }
}
