//! Kubernetes' messages as `prost` encodes them. They have more fields than are read, so that
//! skipping is tested too.

use std::collections::BTreeMap;

use prost::Message;

use crate::slim::protobuf::MAGIC;

/// An object in its envelope.
pub(super) fn enveloped(kind: &str, message: &impl Message) -> Vec<u8> {
    let unknown = UnknownMessage {
        type_meta: Some(TypeMetaMessage {
            api_version: Some("v1".into()),
            kind: Some(kind.into()),
        }),
        raw: Some(message.encode_to_vec()),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    [&MAGIC[..], &unknown.encode_to_vec()].concat()
}

/// A watch event without its length prefix.
pub(super) fn frame(event: &str, object: &[u8]) -> Vec<u8> {
    let event = WatchEventMessage {
        event: Some(event.into()),
        object: Some(RawExtensionMessage {
            raw: Some(object.to_vec()),
        }),
    };
    event.encode_to_vec()
}

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
    UnknownMessage {
        #[prost(message, optional, tag = "1")]
        type_meta: Option<TypeMetaMessage>,
        #[prost(bytes = "vec", optional, tag = "2")]
        raw: Option<Vec<u8>>,
        #[prost(string, optional, tag = "3")]
        content_encoding: Option<String>,
        #[prost(string, optional, tag = "4")]
        content_type: Option<String>,
    }
    TypeMetaMessage {
        #[prost(string, optional, tag = "1")]
        api_version: Option<String>,
        #[prost(string, optional, tag = "2")]
        kind: Option<String>,
    }
    WatchEventMessage {
        #[prost(string, optional, tag = "1")]
        event: Option<String>,
        #[prost(message, optional, tag = "2")]
        object: Option<RawExtensionMessage>,
    }
    RawExtensionMessage {
        #[prost(bytes = "vec", optional, tag = "1")]
        raw: Option<Vec<u8>>,
    }
    ListMetaMessage {
        #[prost(string, optional, tag = "2")]
        resource_version: Option<String>,
        #[prost(string, optional, tag = "3")]
        continue_token: Option<String>,
        #[prost(int64, optional, tag = "4")]
        remaining_item_count: Option<i64>,
    }
    PodListMessage {
        #[prost(message, optional, tag = "1")]
        metadata: Option<ListMetaMessage>,
        #[prost(message, repeated, tag = "2")]
        items: Vec<PodMessage>,
    }
    PodMessage {
        #[prost(message, optional, tag = "1")]
        metadata: Option<MetaMessage>,
        #[prost(message, optional, tag = "2")]
        spec: Option<SpecMessage>,
        #[prost(message, optional, tag = "3")]
        status: Option<PodStatusMessage>,
    }
    MetaMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "2")]
        generate_name: Option<String>,
        #[prost(string, optional, tag = "3")]
        namespace: Option<String>,
        #[prost(string, optional, tag = "5")]
        uid: Option<String>,
        #[prost(string, optional, tag = "6")]
        resource_version: Option<String>,
        #[prost(int64, optional, tag = "7")]
        generation: Option<i64>,
        #[prost(message, optional, tag = "9")]
        deletion_timestamp: Option<TimeMessage>,
        #[prost(int64, optional, tag = "10")]
        deletion_grace_period_seconds: Option<i64>,
        #[prost(btree_map = "string, string", tag = "11")]
        labels: BTreeMap<String, String>,
        #[prost(btree_map = "string, string", tag = "12")]
        annotations: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "13")]
        owner_references: Vec<OwnerMessage>,
        #[prost(string, repeated, tag = "14")]
        finalizers: Vec<String>,
        #[prost(message, repeated, tag = "17")]
        managed_fields: Vec<ManagedFieldsMessage>,
    }
    TimeMessage {
        #[prost(int64, optional, tag = "1")]
        seconds: Option<i64>,
        #[prost(int32, optional, tag = "2")]
        nanos: Option<i32>,
    }
    OwnerMessage {
        #[prost(string, optional, tag = "1")]
        kind: Option<String>,
        #[prost(string, optional, tag = "3")]
        name: Option<String>,
        #[prost(string, optional, tag = "4")]
        uid: Option<String>,
        #[prost(string, optional, tag = "5")]
        api_version: Option<String>,
        #[prost(bool, optional, tag = "6")]
        controller: Option<bool>,
    }
    ManagedFieldsMessage {
        #[prost(string, optional, tag = "1")]
        manager: Option<String>,
        #[prost(string, optional, tag = "2")]
        operation: Option<String>,
        #[prost(message, optional, tag = "4")]
        time: Option<TimeMessage>,
        #[prost(message, optional, tag = "7")]
        fields_v1: Option<FieldsMessage>,
        #[prost(string, optional, tag = "8")]
        subresource: Option<String>,
    }
    FieldsMessage {
        #[prost(bytes = "vec", optional, tag = "1")]
        raw: Option<Vec<u8>>,
    }
    SpecMessage {
        #[prost(message, repeated, tag = "1")]
        volumes: Vec<VolumeMessage>,
        #[prost(message, repeated, tag = "2")]
        containers: Vec<SpecContainerMessage>,
        #[prost(int64, optional, tag = "4")]
        termination_grace_period_seconds: Option<i64>,
        #[prost(string, optional, tag = "10")]
        node_name: Option<String>,
        #[prost(bool, optional, tag = "11")]
        host_network: Option<bool>,
        #[prost(message, repeated, tag = "20")]
        init_containers: Vec<SpecContainerMessage>,
        #[prost(int32, optional, tag = "25")]
        priority: Option<i32>,
    }
    SpecContainerMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(message, repeated, tag = "7")]
        env: Vec<VariableMessage>,
        #[prost(string, optional, tag = "24")]
        restart_policy: Option<String>,
    }
    VariableMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "2")]
        value: Option<String>,
    }
    VolumeMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(message, optional, tag = "2")]
        source: Option<VolumeSourceMessage>,
    }
    VolumeSourceMessage {
        #[prost(message, optional, tag = "2")]
        empty_dir: Option<EmptyMessage>,
        #[prost(message, optional, tag = "10")]
        pvc: Option<ClaimMessage>,
        #[prost(message, optional, tag = "29")]
        ephemeral: Option<EmptyMessage>,
    }
    EmptyMessage {}
    ClaimMessage {
        #[prost(string, optional, tag = "1")]
        claim_name: Option<String>,
        #[prost(bool, optional, tag = "2")]
        read_only: Option<bool>,
    }
    PodStatusMessage {
        #[prost(string, optional, tag = "1")]
        phase: Option<String>,
        #[prost(message, repeated, tag = "2")]
        conditions: Vec<ConditionMessage>,
        #[prost(string, optional, tag = "3")]
        message: Option<String>,
        #[prost(string, optional, tag = "4")]
        reason: Option<String>,
        #[prost(string, optional, tag = "5")]
        host_ip: Option<String>,
        #[prost(string, optional, tag = "6")]
        pod_ip: Option<String>,
        #[prost(message, optional, tag = "7")]
        start_time: Option<TimeMessage>,
        #[prost(message, repeated, tag = "8")]
        containers: Vec<ContainerMessage>,
        #[prost(message, repeated, tag = "10")]
        init_containers: Vec<ContainerMessage>,
        #[prost(message, repeated, tag = "13")]
        ephemeral_containers: Vec<ContainerMessage>,
    }
    ConditionMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "2")]
        status: Option<String>,
        #[prost(message, optional, tag = "4")]
        last_transition_time: Option<TimeMessage>,
        #[prost(string, optional, tag = "5")]
        reason: Option<String>,
    }
    ContainerMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(message, optional, tag = "2")]
        state: Option<StateMessage>,
        #[prost(message, optional, tag = "3")]
        last_state: Option<StateMessage>,
        #[prost(bool, optional, tag = "4")]
        ready: Option<bool>,
        #[prost(int32, optional, tag = "5")]
        restart_count: Option<i32>,
        #[prost(bool, optional, tag = "9")]
        started: Option<bool>,
    }
    StateMessage {
        #[prost(message, optional, tag = "1")]
        waiting: Option<EmptyMessage>,
        #[prost(message, optional, tag = "2")]
        running: Option<EmptyMessage>,
        #[prost(message, optional, tag = "3")]
        terminated: Option<TerminatedMessage>,
    }
    TerminatedMessage {
        #[prost(int32, optional, tag = "1")]
        exit_code: Option<i32>,
        #[prost(message, optional, tag = "5")]
        started_at: Option<TimeMessage>,
        #[prost(message, optional, tag = "6")]
        finished_at: Option<TimeMessage>,
    }
    StatusMessage {
        #[prost(string, optional, tag = "3")]
        message: Option<String>,
        #[prost(string, optional, tag = "4")]
        reason: Option<String>,
        #[prost(message, optional, tag = "5")]
        details: Option<DetailsMessage>,
        #[prost(int32, optional, tag = "6")]
        code: Option<i32>,
    }
    DetailsMessage {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "2")]
        group: Option<String>,
        #[prost(string, optional, tag = "3")]
        kind: Option<String>,
        #[prost(message, repeated, tag = "4")]
        causes: Vec<CauseMessage>,
        #[prost(int32, optional, tag = "5")]
        retry_after_seconds: Option<i32>,
        #[prost(string, optional, tag = "6")]
        uid: Option<String>,
    }
    CauseMessage {
        #[prost(string, optional, tag = "1")]
        reason: Option<String>,
        #[prost(string, optional, tag = "2")]
        message: Option<String>,
        #[prost(string, optional, tag = "3")]
        field: Option<String>,
    }
}
