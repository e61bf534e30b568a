use super::{ObjectMeta, Slim};

/// A PersistentVolumeClaim: whether it is being deleted, its finalizers, and the pod it was
/// created for. All of that is metadata. As every [`Slim`](crate::slim::Slim) kind it is decoded
/// with a [`DecodeContext`](crate::slim::DecodeContext).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pvc {
    /// Metadata. The controller owner of the PVC of an ephemeral volume is its pod.
    pub meta: ObjectMeta,
}

impl Slim for Pvc {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta)
    }
}
