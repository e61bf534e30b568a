//! Synthetic pods as in a busy cluster, each determined by its number.
//!
//! Ten pods per owner, names with random-looking suffixes, a token volume with its own name, a
//! PVC on every fifth, a hold on every pod, and as many environment variables as the requested size
//! needs: a pod of a real cluster has some 5 KB, of which a decision reads a few hundred bytes.

use belayer_core::slim::protobuf::MAGIC;
use prost::Message as _;

use super::messages::{
    Container, ContainerStatus, Empty, Failure, ListMeta, ManagedFields, Metadata, Owner, Pair,
    Pod, PodList, Pvc, RawExtension, Running, Spec, State, Status, Time, TypeMeta, Unknown, Volume,
    VolumeSource, WatchEvent,
};

const PODS_PER_OWNER: usize = 10;
const NAMESPACES: usize = 100;
const NODES: usize = 1000;
const PODS_PER_PVC: usize = 5;
/// 2026-01-01.
const YEAR: i64 = 1_767_225_600;

/// The holds of synthetic pods.
const HOLD: &str = "belayer.dev/pod-status";

/// From this version on all versions have ten digits.
pub const FIRST_VERSION: u64 = 1_000_000_000;

/// A frame of a watch that is encoded once and sent repeatedly.
#[derive(Debug, Clone)]
pub struct Template {
    frame: Vec<u8>,
    version_at: std::ops::Range<usize>,
}

impl Template {
    /// The frame with this version.
    pub fn at(&self, version: u64) -> bytes::Bytes {
        let mut frame = self.frame.clone();
        if let Some(place) = frame.get_mut(self.version_at.clone()) {
            place.copy_from_slice(version.to_string().as_bytes());
        }
        frame.into()
    }
}

/// The frame of a watch whose history the server no longer has: the client must list again.
pub(super) fn expired() -> bytes::Bytes {
    let failure = Failure {
        reason: "Expired".into(),
        code: 410,
    };
    let event = WatchEvent {
        kind: "ERROR".into(),
        object: Some(RawExtension {
            raw: enveloped("Status", failure.encode_to_vec()),
        }),
    };
    let event = event.encode_to_vec();
    let length = (event.len() as u32).to_be_bytes();
    [&length[..], &event].concat().into()
}

/// Creates pods of one size.
#[derive(Debug, Clone, Copy)]
pub struct Pods {
    variables: usize,
    phase: &'static str,
    holds: &'static [&'static str],
    beat: u32,
}

impl Pods {
    /// The smallest pod with everything that a decision reads.
    pub fn small() -> Self {
        Self {
            variables: 0,
            phase: "Running",
            holds: &[HOLD],
            beat: 0,
        }
    }

    /// Of about 5 KB, as protobuf and as etcd stores them.
    pub fn usual() -> Self {
        Self {
            variables: 40,
            ..Self::small()
        }
    }

    /// The same without a hold, so that no controller has work for them.
    pub fn unheld(self) -> Self {
        Self { holds: &[], ..self }
    }

    /// The same in another phase.
    pub fn in_phase(self, phase: &'static str) -> Self {
        Self { phase, ..self }
    }

    /// The same after so many status updates that changed nothing else.
    pub fn after(self, beat: u32) -> Self {
        Self { beat, ..self }
    }

    /// The namespace of a pod: that of its owner.
    pub fn namespace(number: usize) -> String {
        format!("team-{:02}", number / PODS_PER_OWNER % NAMESPACES)
    }

    /// All namespaces of the pods.
    pub fn namespaces() -> impl Iterator<Item = String> {
        (0..NAMESPACES).map(|owner| Self::namespace(owner * PODS_PER_OWNER))
    }

    /// The name of a pod.
    pub fn name(number: usize) -> String {
        let owner = number / PODS_PER_OWNER;
        let end = mix(number, 2) >> 48;
        // The last digit distinguishes siblings, after the random-looking part.
        format!(
            "checkout-{:09x}-{end:04x}{}",
            mix(owner, 1) >> 28,
            number % PODS_PER_OWNER
        )
    }

    /// One pod in the envelope of a GET response and of etcd.
    pub fn stored(self, number: usize) -> Vec<u8> {
        enveloped("Pod", self.pod(number, None).encode_to_vec())
    }

    /// An event about a pod, without its length, as in a watch.
    pub fn event(self, kind: &str, number: usize, version: u64) -> Vec<u8> {
        let raw = enveloped("Pod", self.pod(number, Some(version)).encode_to_vec());
        let event = WatchEvent {
            kind: kind.to_owned(),
            object: Some(RawExtension { raw }),
        };
        event.encode_to_vec()
    }

    /// The same with its length, to be sent with any version of ten digits.
    pub fn template(self, kind: &str, number: usize) -> Template {
        let event = self.event(kind, number, FIRST_VERSION);
        let length = (event.len() as u32).to_be_bytes();
        let frame = [&length[..], &event].concat();
        let digits = FIRST_VERSION.to_string();
        let place = frame
            .windows(digits.len())
            .position(|have| have == digits.as_bytes());
        Template {
            version_at: place.unwrap_or_default()..place.unwrap_or_default() + digits.len(),
            frame,
        }
    }

    /// A page of a list: the pods of these numbers.
    pub fn page(
        self,
        numbers: std::ops::Range<usize>,
        version: u64,
        more: Option<usize>,
    ) -> Vec<u8> {
        let list = PodList {
            metadata: Some(ListMeta {
                resource_version: version.to_string(),
                continue_token: more.map(|next| next.to_string()).unwrap_or_default(),
            }),
            items: numbers
                .map(|number| self.pod(number, Some(1 + number as u64)))
                .collect(),
        };
        enveloped("PodList", list.encode_to_vec())
    }

    fn pod(self, number: usize, version: Option<u64>) -> Pod {
        let owner = number / PODS_PER_OWNER;
        let name = Self::name(number);
        let time = || {
            Some(Time {
                seconds: YEAR + number as i64,
            })
        };
        let volume = |name: String, source| Volume {
            name,
            source: Some(source),
        };
        let mut volumes = vec![
            volume(
                "tmp".into(),
                VolumeSource {
                    empty_dir: Some(Empty {}),
                    pvc: None,
                },
            ),
            volume(
                format!("kube-api-access-{:05x}", mix(number, 3) >> 44),
                VolumeSource::default(),
            ),
        ];
        if number.is_multiple_of(PODS_PER_PVC) {
            let pvc = Pvc {
                claim_name: format!("data-{name}"),
            };
            volumes.push(volume(
                "data".into(),
                VolumeSource {
                    empty_dir: None,
                    pvc: Some(pvc),
                },
            ));
        }
        Pod {
            metadata: Some(Metadata {
                namespace: Self::namespace(number),
                uid: uid(number, 4),
                resource_version: version.map(|version| version.to_string()),
                creation_timestamp: time(),
                labels: labels(&[("app", "checkout"), ("pod-template-hash", "7d9f8b6c5d")]),
                owner_references: vec![Owner {
                    kind: "ReplicaSet".into(),
                    name: name
                        .rsplit_once('-')
                        .map_or("", |(owner, _)| owner)
                        .to_owned(),
                    uid: uid(owner, 5),
                    api_version: "apps/v1".into(),
                    controller: true,
                }],
                finalizers: self.holds.iter().map(|&hold| hold.into()).collect(),
                managed_fields: self.managed_fields(number),
                name,
                ..Metadata::default()
            }),
            spec: Some(Spec {
                volumes,
                containers: vec![Container {
                    name: "main".into(),
                    image: "registry.example/shop/checkout:1.27.3".into(),
                    env: (0..self.variables).map(variable).collect(),
                }],
                restart_policy: "Always".into(),
                node_name: format!("node-{:03}", number % NODES),
            }),
            status: Some(Status {
                phase: self.phase.into(),
                pod_ip: Some(format!(
                    "10.{}.{}.{}",
                    number >> 16 & 0xff,
                    number >> 8 & 0xff,
                    number & 0xff
                )),
                start_time: time(),
                containers: vec![ContainerStatus {
                    name: "main".into(),
                    state: Some(State {
                        running: Some(Running { started_at: time() }),
                    }),
                    ready: true,
                    image: "registry.example/shop/checkout:1.27.3".into(),
                    started: Some(true),
                }],
            }),
        }
    }

    /// managedFields grow with the object: here to about a third of it.
    fn managed_fields(self, number: usize) -> Vec<ManagedFields> {
        let created = YEAR + number as i64;
        let fields: Vec<String> = (0..self.variables)
            .map(|number| format!(r#""k:{{\"name\":\"SERVICE_{number}\"}}":{{".":{{}}}}"#))
            .collect();
        let one = |manager: &str, subresource: &str, seconds, fields: &[String]| ManagedFields {
            manager: manager.into(),
            operation: "Update".into(),
            api_version: "v1".into(),
            time: Some(Time { seconds }),
            fields_type: "FieldsV1".into(),
            fields: Some(RawExtension {
                raw: format!("{{{}}}", fields.join(",")).into_bytes(),
            }),
            subresource: subresource.into(),
        };
        vec![
            one("kube-controller-manager", "", created, &fields),
            one("kubelet", "status", created + i64::from(self.beat), &[]),
        ]
    }
}

fn variable(number: usize) -> Pair {
    Pair {
        name: format!("SERVICE_{number}"),
        value: format!("http://service-{number}.backend.svc.cluster.local:8080/v1"),
    }
}

fn labels(pairs: &[(&str, &str)]) -> Vec<Pair> {
    let pair = |(name, value): &(&str, &str)| Pair {
        name: (*name).into(),
        value: (*value).into(),
    };
    pairs.iter().map(pair).collect()
}

fn enveloped(kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let unknown = Unknown {
        type_meta: Some(TypeMeta {
            api_version: "v1".into(),
            kind: kind.into(),
        }),
        raw,
    };
    [&MAGIC[..], &unknown.encode_to_vec()].concat()
}

/// A random-looking number, different for every number and purpose.
fn mix(number: usize, purpose: u64) -> u64 {
    let mut x = (number as u64) ^ purpose << 56;
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = (x ^ x >> 30).wrapping_mul(factor);
    }
    x ^ x >> 31
}

fn uid(number: usize, purpose: u64) -> String {
    let (high, low) = (mix(number, purpose), number as u64);
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{low:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high >> 4 & 0xfff,
        high & 0xfff,
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use belayer_core::informer::{Decoder as _, ProtobufDecoder, WatchEvent};
    use belayer_core::slim::{self, DecodeContext, Slim as _};

    use super::*;

    fn decoded(number: usize) -> slim::Pod {
        let decoder = ProtobufDecoder::<slim::Pod>::new(DecodeContext::default());
        let page = Pods::small().page(number..number + 1, 9, None);
        let page = decoder.decode_page(&page.into()).unwrap();
        page.items.into_iter().next().unwrap().unwrap()
    }

    #[test]
    fn a_pod_has_what_decisions_read() {
        let pod = decoded(15);
        assert_eq!(pod.key().to_string(), format!("team-01/{}", Pods::name(15)));
        assert!(pod.meta.has_finalizer(HOLD) && pod.started && pod.has_ip);
        assert_eq!(pod.pvcs.len(), 1);
        let sibling = decoded(16);
        assert_eq!(pod.meta.controller, sibling.meta.controller);
        assert_ne!(pod.uid(), sibling.uid());
    }

    #[test]
    fn no_two_pods_share_a_name() {
        let names: BTreeSet<_> = (0..20_000)
            .map(|number| (Pods::namespace(number), Pods::name(number)))
            .collect();
        assert_eq!(names.len(), 20_000);
    }

    #[test]
    fn a_template_is_sent_with_any_version() {
        let decoder = ProtobufDecoder::<slim::Pod>::new(DecodeContext::default());
        let template = Pods::usual().template("MODIFIED", 7);
        for version in [FIRST_VERSION, FIRST_VERSION + 4711] {
            let event = decoder.decode_watch_event(&template.at(version)[4..]);
            let WatchEvent::Modified(pod) = event else {
                panic!("{event:?}");
            };
            assert_eq!(pod.resource_version().get(), version);
        }
    }

    #[test]
    fn the_usual_pod_is_of_5_kb() {
        let bytes = Pods::usual().stored(7).len();
        assert!((4500..5500).contains(&bytes), "{bytes}");
    }
}
