//! The stored roles, for permissions.

use std::sync::Arc;

use serde_json::Value;

use super::{Cluster, ListOptions};
use crate::access::{GROUP, Roles};
use crate::address::Gvr;

impl Roles for Cluster {
    fn list(&self, resource: &'static str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let gvr = Gvr::new(GROUP, "v1", resource);
        let found = Cluster::list(self, &gvr, namespace, &ListOptions::default());
        found.map(|page| page.items).unwrap_or_default()
    }

    fn get(
        &self,
        resource: &'static str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<Arc<Value>> {
        let gvr = Gvr::new(GROUP, "v1", resource);
        Cluster::get(self, &gvr, namespace, name).ok()
    }
}
