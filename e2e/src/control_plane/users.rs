//! The users of the API server.

/// The users with static tokens. All are members of system:masters; Belayer uses a ServiceAccount
/// instead, so that its permissions are tested.
pub(super) struct Users(Vec<String>);

impl Users {
    pub(super) fn new(hollow_nodes: usize) -> Self {
        let mut names = ["admin", "kube-controller-manager", "kube-scheduler"]
            .map(String::from)
            .to_vec();
        names.extend((0..hollow_nodes).map(node_name));
        Self(names)
    }

    pub(super) fn token(user: &str) -> String {
        format!("{user}-token")
    }

    pub(super) fn csv(&self) -> String {
        let line = |user: &String| format!("{},{user},{user},system:masters\n", Self::token(user));
        self.0.iter().map(line).collect()
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
        let csv = Users::new(2).csv();
        assert!(
            csv.contains("hollow-1-token,hollow-1,hollow-1,system:masters\n"),
            "{csv}"
        );
        assert_eq!(csv.lines().count(), 5);
    }
}
