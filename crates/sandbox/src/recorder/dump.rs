//! The whole record as text, for comparing two runs byte by byte.

use std::fmt::Write as _;

use super::{Recorder, Write};

impl Recorder {
    /// Everything that was recorded, one write per line, with times, UIDs, versions, bodies and objects, then
    /// the number of requests of each kind by each client.
    ///
    /// Under paused tokio time on one thread, two runs of one seed give the same bytes.
    pub fn dump(&self) -> String {
        let log = self.log.lock();
        let mut text = String::new();
        for write in &log.writes {
            write.dump(&mut text);
        }
        for ((actor, verb, resource), count) in &log.requests {
            let _ = writeln!(text, "{actor} {} {resource}: {count}", verb.as_str());
        }
        text
    }
}

impl Write {
    fn dump(&self, text: &mut String) {
        let or_none = |value: &Option<std::sync::Arc<serde_json::Value>>| match value {
            Some(value) => value.to_string(),
            None => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "{} {} {} uid={} version={} body={} object={}",
            self.index,
            self.at,
            self.summary(),
            self.uid,
            self.resource_version,
            or_none(&self.body),
            or_none(&self.object),
        );
    }
}
