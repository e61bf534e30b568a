use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use super::meta::{created, finalizers_written, meta, status_written};
use super::{Field, Fields, SlimProtobuf};
use crate::slim::limits::{self, Pvcs, some};
use crate::slim::pod::first_containers;
use crate::slim::{
    BeforeDeletion, Container, ContainerKind, ContainerSet, ContainerState, DecodeContext,
    DecodeError, Failure, Interner, Phase, Pod, Shutdown, Unstarted,
};

/// Field numbers of `PodStatus`.
mod number {
    pub(super) const PHASE: u32 = 1;
    pub(super) const CONDITIONS: u32 = 2;
    pub(super) const MESSAGE: u32 = 3;
    pub(super) const REASON: u32 = 4;
    pub(super) const POD_IP: u32 = 6;
    pub(super) const START_TIME: u32 = 7;
    pub(super) const CONTAINER_STATUSES: u32 = 8;
    pub(super) const INIT_CONTAINER_STATUSES: u32 = 10;
    pub(super) const EPHEMERAL_CONTAINER_STATUSES: u32 = 13;
}

impl SlimProtobuf for Pod {
    const METADATA_ONLY: bool = false;

    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
        let (mut metadata, mut spec, mut status): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => metadata = field.bytes("metadata")?,
                2 => spec = field.bytes("spec")?,
                3 => status = field.bytes("status")?,
                _ => {}
            }
        }
        let meta = meta(metadata, context)?;
        let spec_bytes = spec;
        let Spec {
            node_name,
            host_network,
            pvcs,
            ephemeral_pvcs,
        } = Spec::read(spec, meta.key.name(), &context.interner)?;
        let bytes = status;
        let mut status = Status::read(bytes)?;
        status.has_ip &= !host_network;
        let failure = if status.phase == Phase::Failed {
            Some(Box::new(status.failure(metadata)?))
        } else {
            None
        };
        // Most pods run and are not being deleted: their conditions are not decoded.
        let has_run = status.started || status.has_ip;
        let conditions = if meta.is_deleting() || !has_run {
            Conditions::read(bytes)?
        } else {
            Conditions::default()
        };
        let shutdown = if meta.is_deleting() {
            let roles = Roles::read(spec_bytes);
            let containers = containers(bytes, &roles.sidecars, &context.interner)?;
            Some(Box::new(Shutdown {
                containers: first_containers(containers),
                by_pod_gc: conditions.by_pod_gc,
                container_set: roles.set,
                before: BeforeDeletion::default(),
                created: created(metadata)?,
            }))
        } else {
            None
        };
        let unstarted = (!has_run && !conditions.sandbox_ready).then(|| {
            Box::new(Unstarted {
                scheduled: conditions.scheduled,
                kubelet_reported: status.start_time.is_some() && status.phase != Phase::Failed,
                seen_before_failure: status.phase != Phase::Failed,
                ..Unstarted::default()
            })
        });
        Ok(Self {
            node_name,
            pvcs,
            ephemeral_pvcs,
            phase: status.phase,
            reason: some(&status.reason, &context.interner),
            has_ip: status.has_ip,
            started: status.started,
            failure,
            shutdown,
            unstarted,
            meta,
        })
    }
}

struct Spec {
    node_name: Option<Arc<str>>,
    host_network: bool,
    pvcs: Box<[Arc<str>]>,
    ephemeral_pvcs: Box<[Arc<str>]>,
}

impl Spec {
    fn read(message: &[u8], pod: &str, interner: &Interner) -> Result<Self, DecodeError> {
        let (mut node_name, mut host_network) = (None, false);
        let mut pvcs = Pvcs::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => {
                    let volume = Volume::read(field.bytes("spec.volumes")?)?;
                    pvcs.add(pod, &volume.name, &volume.pvc, volume.ephemeral);
                }
                10 => node_name = some(&field.text("spec.nodeName")?, interner),
                11 => host_network = field.boolean("spec.hostNetwork")?,
                _ => {}
            }
        }
        let (pvcs, ephemeral_pvcs) = pvcs.finish();
        Ok(Self {
            node_name,
            host_network,
            pvcs,
            ephemeral_pvcs,
        })
    }
}

#[derive(Default)]
struct Volume<'a> {
    name: Cow<'a, str>,
    pvc: Cow<'a, str>,
    ephemeral: bool,
}

impl<'a> Volume<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut volume = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => volume.name = field.text("spec.volumes.name")?,
                2 => volume.read_source(field.bytes("spec.volumes")?)?,
                _ => {}
            }
        }
        Ok(volume)
    }

    fn read_source(&mut self, message: &'a [u8]) -> Result<(), DecodeError> {
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                10 => {
                    for field in Fields::of(field.bytes("spec.volumes.persistentVolumeClaim")?) {
                        let field = field?;
                        if field.number == 1 {
                            self.pvc = field.text("spec.volumes.persistentVolumeClaim")?;
                        }
                    }
                }
                29 => self.ephemeral = true,
                _ => {}
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Status<'a> {
    phase: Phase,
    message: Cow<'a, str>,
    reason: Cow<'a, str>,
    has_ip: bool,
    start_time: Option<Field<'a>>,
    started: bool,
    has_container: bool,
    has_container_id: bool,
}

impl<'a> Status<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut status = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                number::PHASE => status.phase = Phase::parse(&field.text("status.phase")?),
                number::MESSAGE => status.message = field.text("status.message")?,
                number::REASON => status.reason = field.text("status.reason")?,
                number::POD_IP => status.has_ip = !field.bytes("status.podIP")?.is_empty(),
                number::START_TIME => status.start_time = Some(field),
                number::CONTAINER_STATUSES
                | number::INIT_CONTAINER_STATUSES
                | number::EPHEMERAL_CONTAINER_STATUSES => {
                    let container = field.bytes("status.containerStatuses")?;
                    status.started |= has_started(container)?;
                    if field.number != number::EPHEMERAL_CONTAINER_STATUSES {
                        let (has_ended, has_id) = is_container(container)?;
                        status.has_container |= has_ended || has_id;
                        status.has_container_id |= has_id;
                    }
                }
                _ => {}
            }
        }
        Ok(status)
    }

    fn failure(&self, metadata: &[u8]) -> Result<Failure, DecodeError> {
        let start_time = match &self.start_time {
            Some(field) => field
                .time("status.startTime")
                .unwrap_or(Some(Timestamp::MIN)),
            None => None,
        };
        Ok(Failure {
            message: (!self.message.is_empty()).then(|| limits::message(&self.message).into()),
            start_time,
            status_written: status_written(metadata)?,
            finalizers_written: finalizers_written(metadata)?,
            created: created(metadata)?,
            has_container: self.has_container,
            has_container_id: self.has_container_id,
        })
    }
}

/// The conditions of a pod that is being deleted or has not run.
#[derive(Default)]
struct Conditions {
    sandbox_ready: bool,
    scheduled: Option<Timestamp>,
    by_pod_gc: bool,
}

impl Conditions {
    fn read(status: &[u8]) -> Result<Self, DecodeError> {
        const PATH: &str = "status.conditions";
        let mut conditions = Self::default();
        for field in Fields::of(status) {
            let field = field?;
            if field.number != number::CONDITIONS {
                continue;
            }
            let (mut name, mut state, mut reason): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
            let mut since = None;
            for field in Fields::of(field.bytes(PATH)?) {
                let field = field?;
                match field.number {
                    1 => name = field.bytes(PATH)?,
                    2 => state = field.bytes(PATH)?,
                    4 => since = field.time(PATH).unwrap_or(Some(Timestamp::MIN)),
                    5 => reason = field.bytes(PATH)?,
                    _ => {}
                }
            }
            if state == b"True" {
                match name {
                    b"PodReadyToStartContainers" => conditions.sandbox_ready = true,
                    b"PodScheduled" => conditions.scheduled = since,
                    b"DisruptionTarget" => conditions.by_pod_gc |= reason == b"DeletionByPodGC",
                    _ => {}
                }
            }
        }
        Ok(conditions)
    }
}

/// What the spec of a pod that is being deleted says about its containers.
#[derive(Default)]
struct Roles<'a> {
    set: ContainerSet,
    /// The names of native sidecars.
    sidecars: Vec<Cow<'a, str>>,
}

impl<'a> Roles<'a> {
    fn read(spec: &'a [u8]) -> Self {
        let mut roles = Self::default();
        if roles.read_spec(spec).is_err() {
            roles.set = ContainerSet::Unknown;
        }
        roles
    }

    fn read_spec(&mut self, spec: &'a [u8]) -> Result<(), DecodeError> {
        const CONTAINERS: u32 = 2;
        const INIT_CONTAINERS: u32 = 20;
        for field in Fields::of(spec) {
            let field = field?;
            if matches!(field.number, CONTAINERS | INIT_CONTAINERS) {
                let container = field.bytes("spec.containers")?;
                self.read_container(container, field.number == INIT_CONTAINERS)?;
            }
        }
        Ok(())
    }

    fn read_container(&mut self, container: &'a [u8], is_init: bool) -> Result<(), DecodeError> {
        const PATH: &str = "spec.containers";
        let (mut name, mut restarts_always) = (Cow::default(), false);
        for field in Fields::of(container) {
            let field = field?;
            match field.number {
                1 => name = field.text(PATH)?,
                7 => self.read_variable(field.bytes(PATH)?)?,
                24 => restarts_always = field.bytes(PATH)? == b"Always",
                _ => {}
            }
        }
        if is_init && restarts_always {
            self.sidecars.push(name);
        }
        Ok(())
    }

    fn read_variable(&mut self, variable: &[u8]) -> Result<(), DecodeError> {
        const PATH: &str = "spec.containers.env";
        let (mut name, mut value) = (Cow::default(), Cow::default());
        for field in Fields::of(variable) {
            let field = field?;
            match field.number {
                1 => name = field.text(PATH)?,
                2 => value = field.text(PATH)?,
                _ => {}
            }
        }
        self.set.add_variable(&name, &value);
        Ok(())
    }
}

/// The containers of a pod that is being deleted: init containers and native sidecars first.
fn containers(
    status: &[u8],
    sidecars: &[Cow<'_, str>],
    interner: &Interner,
) -> Result<Vec<Container>, DecodeError> {
    let mut containers = Vec::new();
    for (wanted, kind) in [
        (number::INIT_CONTAINER_STATUSES, ContainerKind::Init),
        (number::CONTAINER_STATUSES, ContainerKind::Main),
    ] {
        for field in Fields::of(status) {
            let field = field?;
            if field.number == wanted && containers.len() <= limits::CONTAINERS {
                let message = field.bytes("status.containerStatuses")?;
                let mut container = container(message, kind, interner)?;
                if kind == ContainerKind::Init
                    && sidecars.iter().any(|one| **one == *container.name)
                {
                    container.kind = ContainerKind::Sidecar;
                }
                containers.push(container);
            }
        }
    }
    Ok(containers)
}

fn container(
    message: &[u8],
    kind: ContainerKind,
    interner: &Interner,
) -> Result<Container, DecodeError> {
    const PATH: &str = "status.containerStatuses";
    let mut name = Cow::default();
    let mut state = ContainerState::Waiting;
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            1 => name = field.text("status.containerStatuses.name")?,
            2 => state = container_state(field.bytes(PATH)?)?,
            _ => {}
        }
    }
    Ok(Container::new(
        interner.intern(limits::container_name(&name)),
        kind,
        state,
        has_started(message)?,
    ))
}

fn container_state(message: &[u8]) -> Result<ContainerState, DecodeError> {
    const PATH: &str = "status.containerStatuses.state";
    let mut state = ContainerState::Waiting;
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            2 if state == ContainerState::Waiting => state = ContainerState::Running,
            3 => {
                let (mut exit_code, mut finished) = (0, false);
                for field in Fields::of(field.bytes(PATH)?) {
                    let field = field?;
                    match field.number {
                        // A negative int32 is encoded like an int64.
                        1 => exit_code = field.integer(PATH)? as i32,
                        6 => finished = !field.bytes(PATH)?.is_empty(),
                        _ => {}
                    }
                }
                state = ContainerState::Terminated {
                    exit_code,
                    finished,
                };
            }
            _ => {}
        }
    }
    Ok(state)
}

/// A container that terminated without having started has no `startedAt`: the kubelet reports the
/// containers of a rejected pod so. A last state exists only after a run.
fn has_started(container: &[u8]) -> Result<bool, DecodeError> {
    const PATH: &str = "status.containerStatuses";
    let mut any = false;
    for field in Fields::of(container) {
        let field = field?;
        match field.number {
            2 => any |= ran(field.bytes(PATH)?)?,
            3 => any |= !field.bytes(PATH)?.is_empty(),
            5 => any |= field.integer(PATH)? > 0,
            9 => any |= field.boolean(PATH)?,
            _ => {}
        }
    }
    Ok(any)
}

/// Whether this container has ended, and whether it has an ID.
fn is_container(container: &[u8]) -> Result<(bool, bool), DecodeError> {
    const PATH: &str = "status.containerStatuses";
    let (mut has_ended, mut has_id) = (false, false);
    for field in Fields::of(container) {
        let field = field?;
        match field.number {
            2 => {
                for state in Fields::of(field.bytes(PATH)?) {
                    has_ended |= state?.number == 3;
                }
            }
            8 => has_id |= !field.bytes(PATH)?.is_empty(),
            _ => {}
        }
    }
    Ok((has_ended, has_id))
}

/// Whether this state is `running`, or `terminated` after a start.
fn ran(state: &[u8]) -> Result<bool, DecodeError> {
    const PATH: &str = "status.containerStatuses.state";
    let mut any = false;
    for field in Fields::of(state) {
        let field = field?;
        match field.number {
            2 => any = true,
            3 => {
                for field in Fields::of(field.bytes(PATH)?) {
                    let field = field?;
                    if field.number == 5 {
                        any |= !field.bytes(PATH)?.is_empty();
                    }
                }
            }
            _ => {}
        }
    }
    Ok(any)
}
