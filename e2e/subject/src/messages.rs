//! The fields of Kubernetes' pods that synthetic pods have, for `prost`.

use prost::Message;

macro_rules! messages {
    ($($name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, PartialEq, Message)]
            pub(super) struct $name {
                $($(#[$attribute])* pub(super) $field: $type,)*
            }
        )*
    };
}

messages! {
    Unknown {
        #[prost(message, optional, tag = "1")]
        type_meta: Option<TypeMeta>,
        #[prost(bytes = "vec", tag = "2")]
        raw: Vec<u8>,
    }
    TypeMeta {
        #[prost(string, tag = "1")]
        api_version: String,
        #[prost(string, tag = "2")]
        kind: String,
    }
    ListMeta {
        #[prost(string, tag = "2")]
        resource_version: String,
        #[prost(string, tag = "3")]
        continue_token: String,
    }
    PodList {
        #[prost(message, optional, tag = "1")]
        metadata: Option<ListMeta>,
        #[prost(message, repeated, tag = "2")]
        items: Vec<Pod>,
    }
    WatchEvent {
        #[prost(string, tag = "1")]
        kind: String,
        #[prost(message, optional, tag = "2")]
        object: Option<RawExtension>,
    }
    RawExtension {
        #[prost(bytes = "vec", tag = "1")]
        raw: Vec<u8>,
    }
    Failure {
        #[prost(string, tag = "4")]
        reason: String,
        #[prost(int32, tag = "6")]
        code: i32,
    }
    Pod {
        #[prost(message, optional, tag = "1")]
        metadata: Option<Metadata>,
        #[prost(message, optional, tag = "2")]
        spec: Option<Spec>,
        #[prost(message, optional, tag = "3")]
        status: Option<Status>,
    }
    Metadata {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "3")]
        namespace: String,
        #[prost(string, tag = "5")]
        uid: String,
        #[prost(string, optional, tag = "6")]
        resource_version: Option<String>,
        #[prost(message, optional, tag = "8")]
        creation_timestamp: Option<Time>,
        #[prost(message, optional, tag = "9")]
        deletion_timestamp: Option<Time>,
        #[prost(int64, optional, tag = "10")]
        deletion_grace_period_seconds: Option<i64>,
        #[prost(message, repeated, tag = "11")]
        labels: Vec<Pair>,
        #[prost(message, repeated, tag = "13")]
        owner_references: Vec<Owner>,
        #[prost(string, repeated, tag = "14")]
        finalizers: Vec<String>,
        #[prost(message, repeated, tag = "17")]
        managed_fields: Vec<ManagedFields>,
    }
    Pair {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }
    Time {
        #[prost(int64, tag = "1")]
        seconds: i64,
    }
    Owner {
        #[prost(string, tag = "1")]
        kind: String,
        #[prost(string, tag = "3")]
        name: String,
        #[prost(string, tag = "4")]
        uid: String,
        #[prost(string, tag = "5")]
        api_version: String,
        #[prost(bool, tag = "6")]
        controller: bool,
    }
    ManagedFields {
        #[prost(string, tag = "1")]
        manager: String,
        #[prost(string, tag = "2")]
        operation: String,
        #[prost(string, tag = "3")]
        api_version: String,
        #[prost(message, optional, tag = "4")]
        time: Option<Time>,
        #[prost(string, tag = "6")]
        fields_type: String,
        #[prost(message, optional, tag = "7")]
        fields: Option<RawExtension>,
        #[prost(string, tag = "8")]
        subresource: String,
    }
    Spec {
        #[prost(message, repeated, tag = "1")]
        volumes: Vec<Volume>,
        #[prost(message, repeated, tag = "2")]
        containers: Vec<Container>,
        #[prost(string, tag = "3")]
        restart_policy: String,
        #[prost(string, tag = "10")]
        node_name: String,
    }
    Volume {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        source: Option<VolumeSource>,
    }
    VolumeSource {
        #[prost(message, optional, tag = "2")]
        empty_dir: Option<Empty>,
        #[prost(message, optional, tag = "10")]
        pvc: Option<Pvc>,
    }
    Empty {}
    Pvc {
        #[prost(string, tag = "1")]
        claim_name: String,
    }
    Container {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        image: String,
        #[prost(message, repeated, tag = "7")]
        env: Vec<Pair>,
    }
    Status {
        #[prost(string, tag = "1")]
        phase: String,
        #[prost(string, optional, tag = "6")]
        pod_ip: Option<String>,
        #[prost(message, optional, tag = "7")]
        start_time: Option<Time>,
        #[prost(message, repeated, tag = "8")]
        containers: Vec<ContainerStatus>,
    }
    ContainerStatus {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, optional, tag = "2")]
        state: Option<State>,
        #[prost(bool, tag = "4")]
        ready: bool,
        #[prost(string, tag = "6")]
        image: String,
        #[prost(bool, optional, tag = "9")]
        started: Option<bool>,
    }
    State {
        #[prost(message, optional, tag = "2")]
        running: Option<Running>,
    }
    Running {
        #[prost(message, optional, tag = "1")]
        started_at: Option<Time>,
    }
}
