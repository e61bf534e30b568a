use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Envelope, Field, Fields};
use crate::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};
use crate::slim::json::{Identity, has_finalizers, has_spec};
use crate::slim::limits::{self, Finalizers};
use crate::slim::{DecodeContext, DecodeError, Interner, Labels, ObjectMeta};

/// Field numbers of `ObjectMeta`.
mod number {
    pub(super) const NAME: u32 = 1;
    pub(super) const NAMESPACE: u32 = 3;
    pub(super) const UID: u32 = 5;
    pub(super) const RESOURCE_VERSION: u32 = 6;
    pub(super) const CREATION_TIMESTAMP: u32 = 8;
    pub(super) const DELETION_TIMESTAMP: u32 = 9;
    pub(super) const DELETION_GRACE_PERIOD_SECONDS: u32 = 10;
    pub(super) const LABELS: u32 = 11;
    pub(super) const ANNOTATIONS: u32 = 12;
    pub(super) const OWNER_REFERENCES: u32 = 13;
    pub(super) const FINALIZERS: u32 = 14;
    pub(super) const MANAGED_FIELDS: u32 = 17;
}

/// Decodes a message `ObjectMeta`.
///
/// The [example of protobuf](crate::slim::protobuf) decodes the metadata of a Lease.
///
/// # Errors
///
/// If the bytes are not such a message, name, UID or resourceVersion are missing, or a version or
/// time is invalid.
pub fn meta(message: &[u8], context: &DecodeContext) -> Result<ObjectMeta, DecodeError> {
    let DecodeContext { keep, interner } = context;
    let (mut name, mut namespace) = (Cow::default(), Cow::default());
    let (mut uid, mut version) = (Cow::default(), Cow::default());
    let (mut deletion_timestamp, mut deletion_grace_period) = (None, None);
    let mut finalizers = Finalizers::new(context);
    let mut controller = None;
    let (mut labels, mut annotations) = (Vec::new(), Vec::new());
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            number::NAME => name = field.text("metadata.name")?,
            number::NAMESPACE => namespace = field.text("metadata.namespace")?,
            number::UID => uid = field.text("metadata.uid")?,
            number::RESOURCE_VERSION => version = field.text("metadata.resourceVersion")?,
            number::DELETION_TIMESTAMP => {
                deletion_timestamp = field
                    .time("metadata.deletionTimestamp")
                    .unwrap_or(Some(Timestamp::MAX));
            }
            number::DELETION_GRACE_PERIOD_SECONDS => {
                deletion_grace_period = Some(field.integer("metadata.deletionGracePeriodSeconds")?);
            }
            number::LABELS => {
                labels.extend(pair(
                    "metadata.labels",
                    &field,
                    keep.label_names(),
                    interner,
                )?);
            }
            number::ANNOTATIONS => {
                let names = keep.annotation_names();
                annotations.extend(pair("metadata.annotations", &field, names, interner)?);
            }
            number::OWNER_REFERENCES if controller.is_none() => {
                controller = controlling(field.bytes("metadata.ownerReferences")?, interner)?;
            }
            number::FINALIZERS => {
                finalizers.add(&field.text("metadata.finalizers")?);
            }
            _ => {}
        }
    }
    if name.is_empty() {
        return Err(DecodeError::Missing("metadata.name"));
    }
    if uid.is_empty() {
        return Err(DecodeError::Missing("metadata.uid"));
    }
    Ok(ObjectMeta {
        key: ObjectKey::new(interner.intern(&namespace), &*name),
        uid: Uid::new(&*uid),
        resource_version: parse_version(&version)?,
        deletion_timestamp,
        deletion_grace_period,
        finalizers: finalizers.finish(),
        controller,
        labels: pairs(labels),
        annotations: pairs(annotations).of_creator(keep, |manager| {
            is_created_by(message, manager).unwrap_or(true)
        }),
    })
}

type Pair = (Arc<str>, Arc<str>);

/// A map is encoded as a list of pairs.
fn pair(
    path: &'static str,
    field: &Field<'_>,
    names: &[Arc<str>],
    interner: &Interner,
) -> Result<Option<Pair>, DecodeError> {
    if names.is_empty() {
        return Ok(None);
    }
    let (name, value) = name_and_value(path, field)?;
    let found = names.binary_search_by(|have| (**have).cmp(&*name)).ok();
    let found = found.filter(|_| value.len() <= limits::VALUE);
    Ok(found.map(|at| (Arc::clone(&names[at]), interner.intern(&value))))
}

fn name_and_value<'a>(
    path: &'static str,
    field: &Field<'a>,
) -> Result<(Cow<'a, str>, Cow<'a, str>), DecodeError> {
    let (mut name, mut value) = (Cow::default(), Cow::default());
    for field in Fields::of(field.bytes(path)?) {
        let field = field?;
        match field.number {
            1 => name = field.text(path)?,
            2 => value = field.text(path)?,
            _ => {}
        }
    }
    Ok((name, value))
}

fn pairs(pairs: Vec<Pair>) -> Labels {
    if pairs.is_empty() {
        Labels::default()
    } else {
        pairs.into_iter().collect()
    }
}

/// The reference, if it has `controller: true`.
fn controlling(
    message: &[u8],
    interner: &Interner,
) -> Result<Option<Arc<OwnerReference>>, DecodeError> {
    let (mut api_version, mut kind) = (Cow::default(), Cow::default());
    let (mut name, mut uid) = (Cow::default(), Cow::default());
    let mut controller = false;
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            1 => kind = field.text("metadata.ownerReferences.kind")?,
            3 => name = field.text("metadata.ownerReferences.name")?,
            4 => uid = field.text("metadata.ownerReferences.uid")?,
            5 => api_version = field.text("metadata.ownerReferences.apiVersion")?,
            6 => controller = field.boolean("metadata.ownerReferences.controller")?,
            _ => {}
        }
    }
    // All pods of one owner have the same reference.
    Ok(controller.then(|| {
        interner.intern_owner(OwnerReference {
            api_version: interner.intern(limits::any_name(&api_version)),
            kind: interner.intern(limits::name(&kind)),
            name: interner.intern(limits::any_name(&name)),
            uid: Uid::new(limits::name(&uid)),
        })
    }))
}

const FIELDS: &str = "metadata.managedFields.fieldsV1";
const TIME: &str = "metadata.managedFields.time";

/// When it was created; `None` also if the time cannot be parsed.
pub(super) fn created(message: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
    for field in Fields::of(message) {
        let field = field?;
        if field.number == number::CREATION_TIMESTAMP {
            return Ok(field.time("metadata.creationTimestamp").unwrap_or_default());
        }
    }
    Ok(None)
}

/// An entry of `managedFields`.
#[derive(Default)]
struct Manager<'a> {
    name: &'a [u8],
    subresource: &'a [u8],
    time: Option<Field<'a>>,
    /// The message `FieldsV1`.
    fields: &'a [u8],
}

impl<'a> Manager<'a> {
    fn all(message: &'a [u8]) -> impl Iterator<Item = Result<Self, DecodeError>> {
        Fields::of(message).filter_map(|field| match field {
            Ok(field) if field.number != number::MANAGED_FIELDS => None,
            field => Some(field.and_then(|field| Self::read(&field))),
        })
    }

    fn read(field: &Field<'a>) -> Result<Self, DecodeError> {
        let mut manager = Self::default();
        for field in Fields::of(field.bytes("metadata.managedFields")?) {
            let field = field?;
            match field.number {
                1 => manager.name = field.bytes("metadata.managedFields.manager")?,
                4 => manager.time = Some(field),
                7 => manager.fields = field.bytes(FIELDS)?,
                8 => manager.subresource = field.bytes("metadata.managedFields.subresource")?,
                _ => {}
            }
        }
        Ok(manager)
    }

    /// Whether it wrote such fields, by their JSON.
    fn wrote(&self, are_such: fn(&[u8]) -> bool) -> Result<bool, DecodeError> {
        for field in Fields::of(self.fields) {
            let field = field?;
            if field.number == 1 {
                return Ok(are_such(field.bytes(FIELDS)?));
            }
        }
        Ok(false)
    }
}

/// When the kubelet last wrote the status; if it never did, when any component last did.
pub(super) fn status_written(message: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
    let (mut kubelet, mut any) = (None, None);
    for manager in Manager::all(message) {
        let manager = manager?;
        if manager.subresource != b"status" {
            continue;
        }
        // An invalid time counts as missing.
        let time = manager.time.and_then(|field| field.time(TIME).ok()?);
        any = any.max(time);
        if manager.name == b"kubelet" {
            kubelet = kubelet.max(time);
        }
    }
    Ok(kubelet.or(any))
}

/// When the field managers that own finalizers last wrote; `None` if one has no time, or none owns any.
pub(super) fn finalizers_written(message: &[u8]) -> Result<Option<Timestamp>, DecodeError> {
    let mut last = None;
    for manager in Manager::all(message) {
        let manager = manager?;
        if manager.wrote(has_finalizers)? {
            let time = manager.time.and_then(|field| field.time(TIME).ok()?);
            let Some(time) = time else { return Ok(None) };
            last = last.max(Some(time));
        }
    }
    Ok(last)
}

/// Whether this field manager wrote a field of the spec. Without any managers, it may have.
fn is_created_by(message: &[u8], wanted: &str) -> Result<bool, DecodeError> {
    let mut has_managers = false;
    for manager in Manager::all(message) {
        let manager = manager?;
        has_managers = true;
        if manager.name == wanted.as_bytes()
            && manager.subresource.is_empty()
            && manager.wrote(has_spec)?
        {
            return Ok(true);
        }
    }
    Ok(!has_managers)
}

/// The version in a message `ObjectMeta`, also in that of a bookmark, which has only a version.
pub(crate) fn version_of(message: &[u8]) -> Result<ResourceVersion, DecodeError> {
    for field in Fields::of(message) {
        let field = field?;
        if field.number == number::RESOURCE_VERSION {
            return parse_version(&field.text("metadata.resourceVersion")?);
        }
    }
    Err(DecodeError::Missing("metadata.resourceVersion"))
}

/// The version and the finalizers of an object in its envelope.
pub(crate) fn version_and_finalizers(
    bytes: &[u8],
) -> Result<(ResourceVersion, Vec<String>), DecodeError> {
    let mut fields = Fields::of(Envelope::open(bytes)?.message);
    let metadata = loop {
        let field = fields.next().ok_or(DecodeError::Missing("metadata"))??;
        if field.number == 1 {
            break field.bytes("metadata")?;
        }
    };
    let mut finalizers = Vec::new();
    for field in Fields::of(metadata) {
        let field = field?;
        if field.number == number::FINALIZERS {
            finalizers.push(field.text("metadata.finalizers")?.into_owned());
        }
    }
    Ok((version_of(metadata)?, finalizers))
}

/// The value of one annotation in a message `ObjectMeta`.
pub(crate) fn annotation<'a>(message: &'a [u8], wanted: &str) -> Option<Cow<'a, str>> {
    Fields::of(message)
        .map_while(Result::ok)
        .filter(|field| field.number == number::ANNOTATIONS)
        .filter_map(|field| name_and_value("metadata.annotations", &field).ok())
        .find_map(|(name, value)| (name == wanted).then_some(value))
}

fn parse_version(text: &str) -> Result<ResourceVersion, DecodeError> {
    if text.is_empty() {
        return Err(DecodeError::Missing("metadata.resourceVersion"));
    }
    ResourceVersion::parse(text).ok_or_else(|| DecodeError::value("metadata.resourceVersion", text))
}

/// Reads the identifying fields of a bad object as far as possible: the bytes may be truncated, and
/// any field may be of any type. `message` is that of the object, not of its metadata.
/// [`sniff`](crate::slim::json::sniff) does the same with JSON.
pub fn identity(message: &[u8]) -> Identity {
    let metadata = Fields::of_broken(message)
        .map_while(Result::ok)
        .filter(|field| field.number == 1)
        .find_map(|field| field.bytes("metadata").ok());
    let mut identity = Identity::default();
    for field in Fields::of_broken(metadata.unwrap_or_default()).map_while(Result::ok) {
        let into = match field.number {
            number::NAME => &mut identity.name,
            number::NAMESPACE => &mut identity.namespace,
            number::UID => &mut identity.uid,
            number::RESOURCE_VERSION => &mut identity.resource_version,
            _ => continue,
        };
        if let Ok(text) = field.text("metadata") {
            *into = Some(text.into_owned());
        }
    }
    identity
}
