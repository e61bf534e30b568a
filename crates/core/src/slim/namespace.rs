use super::{ObjectMeta, Slim};

/// A namespace: whether it is being deleted, and its labels. It is a [`Slim`](crate::slim::Slim)
/// kind; the [example of informers](crate::informer) watches another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Metadata.
    pub meta: ObjectMeta,
}

impl Slim for Namespace {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta)
    }
}
