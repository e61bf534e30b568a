//! Which writes a query matches.

use super::{Outcome, Verb, Write};

/// A set of writes: every property that is set narrows it.
///
/// ```
/// use belayer_sandbox::{Verb, WriteFilter};
///
/// let mine = WriteFilter::any().by("my-controller").verb(Verb::Patch).resource("pods");
/// # let _ = mine;
/// ```
///
/// The [crate's example](crate) filters by author.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteFilter {
    actor: Option<String>,
    verbs: Vec<Verb>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    fate: Fate,
}

/// The result of the writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Any,
    Applied,
    Refused,
}

impl WriteFilter {
    /// Every mutating request.
    pub fn any() -> Self {
        Self::default()
    }

    /// By this actor.
    pub fn by(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// With this verb; when called again, with any of the given verbs.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Of this plural resource, such as `pods`; with a group suffix, such as `jobs.batch`, of that group.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Through this subresource; empty is the object itself.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// In this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// For an object of this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only those that changed the store.
    pub fn applied(mut self) -> Self {
        self.fate = Fate::Applied;
        self
    }

    /// Only those that were refused.
    pub fn refused(mut self) -> Self {
        self.fate = Fate::Refused;
        self
    }

    /// Whether a write belongs to the set.
    pub fn matches(&self, write: &Write) -> bool {
        let fits =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|w| w == found);
        let fate = match self.fate {
            Fate::Any => true,
            Fate::Applied => write.changed(),
            Fate::Refused => matches!(write.outcome, Outcome::Refused(_)),
        };
        fate && fits(&self.actor, write.actor.as_str())
            && (self.verbs.is_empty() || self.verbs.contains(&write.verb))
            && self.fits_resource(write)
            && fits(&self.subresource, write.subresource)
            && fits(&self.namespace, &write.key.namespace)
            && fits(&self.name, &write.key.name)
    }

    fn fits_resource(&self, write: &Write) -> bool {
        let Some(wanted) = &self.resource else {
            return true;
        };
        match wanted.split_once('.') {
            None => *wanted == write.resource.resource,
            Some((resource, group)) => {
                resource == write.resource.resource && group == write.resource.group
            }
        }
    }
}
