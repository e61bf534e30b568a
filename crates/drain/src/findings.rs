//! Collects the results of a pass into the report.

use std::collections::BTreeMap;

use belayer_core::http::RequestError;
use belayer_core::object::Resource;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_inspect::reader::explain;

use belayer_pod_recreation::api;

use crate::decide::Why;
use crate::passes::Pass;
use crate::records::UncreatedPod;
use crate::release::{ObjectResult, Trouble};
use crate::report::{Left, Reason, Refused, Report, Unseen, why_text};

/// Results of a pass.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) left: Vec<Left>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) failed: Vec<Refused>,
    pub(crate) hidden: Vec<Unseen>,
    pub(crate) unseen: Vec<Unseen>,
    /// Objects that were released, by namespace.
    pub(crate) released: BTreeMap<String, u64>,
    /// Objects with holds in namespaces that do not affect the outcome.
    pub(crate) excepted: u64,
}

impl Findings {
    /// Adds the result for one object.
    pub(crate) fn note(
        &mut self,
        (kind, meta): (&Resource, &ObjectMeta),
        result: ObjectResult,
        pass: &mut Pass,
        report: &mut Report,
    ) {
        let ObjectResult {
            released,
            kept,
            trouble,
        } = result;
        let namespace = meta.key.namespace().unwrap_or_default();
        let name = match meta.key.namespace() {
            Some(namespace) => format!("{namespace}/{kind}/{}", meta.key.name()),
            None => format!("{kind}/{}", meta.key.name()),
        };
        // Objects in excepted namespaces are handled and reported, but do not affect the outcome.
        let mut nothing = Pass::default();
        let excepted = report.excepts(namespace);
        let pass = if excepted { &mut nothing } else { pass };
        self.excepted += u64::from(excepted);
        if !released.is_empty() {
            pass.released += 1;
            if !excepted {
                *self.released.entry(namespace.to_owned()).or_default() += 1;
            }
            let is_another = report.taken.uids.insert(meta.uid.clone());
            report.taken.objects += u64::from(is_another);
        }
        for (hold, evidence) in released {
            let by = report.taken.holds.entry(hold.to_owned()).or_default();
            *by.entry(evidence).or_default() += 1;
        }
        for one in &kept {
            // A failed read is an error, not a property of the object.
            match one.why {
                Why::UseUnknown(_) | Why::Unrecorded(_) => pass.unsettled += 1,
                _ => pass.left += 1,
            }
            self.left.push(Left {
                reason: Reason::of(&one.why),
                resource: kind.to_string(),
                namespace: namespace.to_owned(),
                name: meta.key.name().to_owned(),
                hold: one.hold.clone(),
                why: why_text(&one.why),
            });
        }
        match trouble {
            None => {}
            Some(Trouble::Refused { code, message }) => {
                pass.refused += 1;
                self.refused.push(Refused {
                    what: name,
                    why: message,
                    code,
                });
            }
            Some(Trouble::Failed(why)) => {
                pass.unsettled += 1;
                self.failed.push(Refused {
                    what: name,
                    why,
                    code: 0,
                });
            }
        }
    }

    /// Adds kinds that may not or could not be listed, each once.
    pub(crate) fn note_unlisted(&mut self, hidden: Vec<Unseen>, unseen: Vec<Unseen>) {
        for (all, more) in [(&mut self.hidden, hidden), (&mut self.unseen, unseen)] {
            for one in more {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
    }

    /// Adds pods that exist only in their records: a running Belayer creates them, or they are reported.
    pub(crate) fn note_uncreated(
        &mut self,
        uncreated: Vec<UncreatedPod>,
        pass: &mut Pass,
        report: &Report,
    ) {
        for UncreatedPod {
            key,
            why,
            in_progress,
        } in uncreated
        {
            let namespace = key.namespace().unwrap_or_default();
            match (report.excepts(namespace), in_progress) {
                (true, _) => self.excepted += 1,
                (false, true) => pass.unsettled += 1,
                (false, false) => pass.left += 1,
            }
            self.left.push(Left {
                reason: Reason::InItsRecord,
                resource: api::resource().to_string(),
                namespace: namespace.to_owned(),
                name: key.name().to_owned(),
                hold: POD_RECREATION_HOLD.to_owned(),
                why,
            });
        }
    }

    /// Adds a step of the run that failed.
    pub(crate) fn note_step(&mut self, what: &str, error: &RequestError) {
        let list = if error.class().is_transient() {
            &mut self.failed
        } else {
            &mut self.refused
        };
        list.push(Refused {
            what: what.to_owned(),
            why: explain(error),
            code: error.api().map_or(0, |api| api.code),
        });
    }

    /// Completes the counters of the pass and sorts the results.
    pub(crate) fn close(&mut self, pass: &mut Pass) {
        let steps = |of: &[Refused]| of.iter().filter(|step| step.is_step()).count();
        pass.refused += steps(&self.refused);
        pass.unsettled += steps(&self.failed);
        pass.hidden = self.hidden.len();
        pass.unseen = self.unseen.len();
        self.left.sort();
        self.refused.sort();
        self.failed.sort();
    }
}

impl Refused {
    /// Whether it is a step of the run, not an object.
    fn is_step(&self) -> bool {
        self.what.contains(' ')
    }
}
