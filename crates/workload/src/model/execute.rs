//! Runs the templates of a workflow: creates its nodes, and the pods of those that have one.

use std::time::Duration;

use jiff::Timestamp;

use super::node::hashed;
use super::spec::{Template, TemplateStep};
use super::{Caller, Kind, Node, Operation, Phase, pods};

/// At a rate of creation, pods that are due within this time are created together.
const TOGETHER: Duration = Duration::from_millis(50);

impl Operation<'_> {
    /// Runs the entrypoint and what follows it.
    pub(super) fn execute_all(&mut self) {
        let template = self.spec.template(&self.spec.entrypoint);
        let caller = Caller {
            boundary: "",
            is_on_exit: false,
        };
        let entry = if self.spec.script.is_some() {
            self.execute_script()
        } else {
            self.execute(self.name, &template, caller)
        };
        if self.spec.shutdown.is_none() {
            self.reconcile_tasks();
        }
        self.finish(&entry);
    }

    /// Runs a template. Returns the key of its node.
    pub(super) fn execute(
        &mut self,
        name: &str,
        template: &Template,
        caller: Caller<'_>,
    ) -> String {
        let id = hashed(self.name, name);
        let version = self.rules.version;
        if self
            .nodes
            .get(&id)
            .is_some_and(|node| node.is_settled(version))
        {
            return id;
        }
        match &template.retry_strategy {
            Some(retry) => self.execute_with_retries(name, template, retry, caller),
            None => self.execute_once(name, template, caller),
        }
    }

    pub(super) fn execute_once(
        &mut self,
        name: &str,
        template: &Template,
        caller: Caller<'_>,
    ) -> String {
        if let Some(steps) = &template.steps {
            return self.execute_steps(name, template, steps, caller);
        }
        if let Some(suspend) = &template.suspend {
            let id = self.init(name, Kind::Suspend, template, caller);
            let started = self.nodes.get(&id).and_then(|node| node.started_at);
            let left = suspend
                .duration()
                .map(|time| time.saturating_sub(self.since(started)));
            match left {
                Some(Duration::ZERO) => self.mark(&id, Phase::Succeeded, None),
                left => {
                    self.mark(&id, Phase::Running, None);
                    left.into_iter().for_each(|left| self.look.again_in(left));
                }
            }
            return id;
        }
        if template.http.is_some() {
            return self.init(name, Kind::Http, template, caller);
        }
        let id = self.init(name, Kind::Pod, template, caller);
        if let Some(node) = self.nodes.get_mut(&id)
            && !template.daemon
        {
            node.task_result_synced.get_or_insert(true);
        }
        let workflow = self.workflow;
        self.create_pod(
            &id,
            || pods::of_template(workflow, &id, name, template, caller),
            caller,
        );
        for container in template
            .container_set
            .iter()
            .flat_map(|set| &set.containers)
        {
            let inner = Caller {
                boundary: &id,
                ..caller
            };
            let child = self.init(
                &format!("{name}.{}", container.name),
                Kind::Container,
                template,
                inner,
            );
            self.add_child(&id, child);
        }
        id
    }

    /// Creates the pod of a node, unless it exists or the workflow is to end.
    fn create_pod(
        &mut self,
        id: &str,
        pod: impl FnOnce() -> serde_json::Value,
        caller: Caller<'_>,
    ) {
        if self.pods.contains_key(id) {
            return;
        }
        if let Some(shutdown) = self
            .spec
            .shutdown
            .filter(|_| !self.may_run(caller.is_on_exit))
        {
            let message = format!("workflow shutdown with strategy: {}", shutdown.name());
            self.mark(id, Phase::Failed, Some(&message));
            return;
        }
        let pod = pod();
        self.look.pods.push(pod);
    }

    fn execute_steps(
        &mut self,
        name: &str,
        template: &Template,
        groups: &[Vec<TemplateStep>],
        caller: Caller<'_>,
    ) -> String {
        let id = self.init(name, Kind::Steps, template, caller);
        self.mark_if_new(&id);
        let inner = Caller {
            boundary: &id,
            ..caller
        };
        for (number, steps) in groups.iter().enumerate() {
            let group_name = format!("{name}[{number}]");
            let group = self.init(&group_name, Kind::StepGroup, &Template::default(), inner);
            self.mark_if_new(&group);
            for (path, step) in expand(&group_name, steps) {
                let child = self.execute(&path, &self.spec.template(&step.template), inner);
                self.add_child(&group, child);
            }
            if !self.finish_group(&group) {
                return id;
            }
            if let Some(failed) = self.nodes.get(&group).filter(|node| node.phase.is_failed()) {
                let message = failed.message.clone();
                self.mark(&id, Phase::Failed, Some(&message));
                self.end_daemons(&id);
                return id;
            }
        }
        self.mark(&id, Phase::Succeeded, None);
        self.end_daemons(&id);
        id
    }

    /// Marks a group of steps as finished, if all its steps are. Returns whether they are.
    fn finish_group(&mut self, group: &str) -> bool {
        let version = self.rules.version;
        let children = self
            .nodes
            .get(group)
            .map(|node| node.children.clone())
            .unwrap_or_default();
        let nodes = || children.iter().filter_map(|child| self.nodes.get(child));
        if !nodes().all(|child| child.is_fulfilled(version)) {
            self.mark(group, Phase::Running, None);
            return false;
        }
        match nodes()
            .find(|child| child.phase.is_failed())
            .map(|child| child.id.clone())
        {
            Some(failed) => {
                self.mark(
                    group,
                    Phase::Failed,
                    Some(&format!("child '{failed}' failed")),
                );
            }
            None => self.mark(group, Phase::Succeeded, None),
        }
        true
    }

    /// Runs the pods of a scripted workflow, at its rate. Returns the key of the node that stands for all of them.
    fn execute_script(&mut self) -> String {
        let Some(script) = self.spec.script.clone() else {
            return String::new();
        };
        let caller = Caller {
            boundary: self.name,
            is_on_exit: false,
        };
        let template = Template {
            name: "main".to_owned(),
            ..Template::default()
        };
        let id = self.init(
            self.name,
            Kind::Steps,
            &template,
            Caller {
                boundary: "",
                ..caller
            },
        );
        self.mark_if_new(&id);
        let passed = self.since(self.started);
        for number in 0..script.pods {
            let wait = script.created_after(number).saturating_sub(passed);
            if !wait.is_zero() {
                self.look.again_in(wait.max(TOGETHER));
                return id;
            }
            let pod_name = format!("{}.main({number})", self.name);
            let child = crate::objects::node_id(self.name, number);
            let version = self.rules.version;
            if self
                .nodes
                .get(&child)
                .is_some_and(|node| node.is_settled(version))
            {
                continue;
            }
            self.init_as(child.clone(), &pod_name, Kind::Pod, &template, caller);
            if let Some(node) = self.nodes.get_mut(&child) {
                node.task_result_synced.get_or_insert(true);
            }
            let (workflow, owner) = (self.workflow, self.name);
            let pod = || crate::objects::pod(workflow, number, &script.pod(owner, number));
            self.create_pod(&child, pod, caller);
            self.add_child(&id, child);
        }
        self.finish_group(&id);
        id
    }

    /// The node of this name; a new one if there is none. Returns its key.
    fn init(&mut self, name: &str, kind: Kind, template: &Template, caller: Caller<'_>) -> String {
        let id = hashed(self.name, name);
        self.init_as(id.clone(), name, kind, template, caller);
        id
    }

    fn init_as(
        &mut self,
        id: String,
        name: &str,
        kind: Kind,
        template: &Template,
        caller: Caller<'_>,
    ) {
        if self.nodes.contains_key(&id) {
            return;
        }
        let boundary = self
            .nodes
            .get(caller.boundary)
            .map(|node| node.name.as_str());
        let node = Node {
            display_name: boundary
                .map_or(name, |boundary| last_part(name, boundary))
                .to_owned(),
            template_name: template.name.clone(),
            boundary: caller.boundary.to_owned(),
            ..Node::new(id.clone(), name.to_owned(), kind, self.now)
        };
        self.nodes.insert(id, node);
    }

    pub(super) fn init_retry(
        &mut self,
        name: &str,
        template: &Template,
        caller: Caller<'_>,
    ) -> String {
        let id = self.init(name, Kind::Retry, template, caller);
        self.mark_if_new(&id);
        id
    }

    /// Nodes without a pod run from the start.
    fn mark_if_new(&mut self, id: &str) {
        if self
            .nodes
            .get(id)
            .is_some_and(|node| node.phase == Phase::Pending)
        {
            self.mark(id, Phase::Running, None);
        }
    }

    pub(super) fn mark(&mut self, id: &str, phase: Phase, message: Option<&str>) {
        let (now, version) = (self.now, self.rules.version);
        if let Some(node) = self.nodes.get_mut(id) {
            node.mark(phase, message, now, version);
        }
    }

    pub(super) fn add_child(&mut self, parent: &str, child: String) {
        if let Some(node) = self.nodes.get_mut(parent)
            && !node.children.contains(&child)
        {
            node.children.push(child);
        }
    }

    pub(super) fn since(&self, time: Option<Timestamp>) -> Duration {
        let passed = time.map(|time| self.precise.duration_since(time));
        passed
            .and_then(|passed| Duration::try_from(passed).ok())
            .unwrap_or_default()
    }
}

/// The steps of a group by their names: one for each item of a sequence.
fn expand<'s>(group: &str, steps: &'s [TemplateStep]) -> Vec<(String, &'s TemplateStep)> {
    let paths = |step: &TemplateStep| match &step.with_sequence {
        None => vec![format!("{group}.{}", step.name)],
        Some(sequence) => {
            let items = 0..sequence.count;
            items
                .map(|item| format!("{group}.{}({item}:{item})", step.name))
                .collect()
        }
    };
    steps
        .iter()
        .flat_map(|step| paths(step).into_iter().map(move |path| (path, step)))
        .collect()
}

/// A node's name without that of the node of steps around it and the number of the group.
fn last_part<'n>(name: &'n str, boundary: &str) -> &'n str {
    let rest = name.strip_prefix(boundary).unwrap_or(name);
    match rest.split_once('.') {
        Some((group, last)) if group.is_empty() || group.starts_with('[') => last,
        _ => rest,
    }
}
