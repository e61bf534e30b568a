//! The users of the API server.

use super::node::real_node_name;

/// The users with static tokens. All are members of system:masters, except real nodes; Belayer uses a
/// ServiceAccount instead, so that its permissions are tested.
pub(super) struct Users {
    masters: Vec<String>,
    nodes: Vec<String>,
}

impl Users {
    pub(super) fn new(hollow_nodes: usize, real_nodes: usize) -> Self {
        let mut names = ["admin", "kube-controller-manager", "kube-scheduler"]
            .map(String::from)
            .to_vec();
        names.extend((0..hollow_nodes).map(node_name));
        Self {
            masters: names,
            nodes: (0..real_nodes).map(real_node_name).collect(),
        }
    }

    pub(super) fn token(user: &str) -> String {
        format!("{user}-token")
    }

    pub(super) fn csv(&self) -> String {
        let master =
            |user: &String| format!("{},{user},{user},system:masters\n", Self::token(user));
        let node = |node: &String| {
            let token = Self::token(node);
            format!("{token},system:node:{node},{node},system:nodes\n")
        };
        let masters = self.masters.iter().map(master);
        masters.chain(self.nodes.iter().map(node)).collect()
    }
}

/// The name of a node with a kubelet.
pub(super) fn node_name(index: usize) -> String {
    format!("hollow-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_user_of_its_own() {
        let csv = Users::new(2, 1).csv();
        assert!(
            csv.contains("hollow-1-token,hollow-1,hollow-1,system:masters\n"),
            "{csv}"
        );
        assert!(
            csv.contains("node-1-token,system:node:node-1,node-1,system:nodes\n"),
            "{csv}"
        );
        assert_eq!(csv.lines().count(), 6);
    }
}
