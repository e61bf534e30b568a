//! Faults from a file: active from the start, or at a point of a timeline.
//!
//! ```yaml
//! # Each fault is a set of requests, a choice among them, and an action on those chosen.
//! faults:
//! - on: {verbs: [patch], resource: pods, client: belayer}  # every key narrows; {} matches all
//!   after: 2             # skips the first two; also: nth, every, times, probability
//!   times: 5
//!   then: {answer: {code: 409}}
//! - on: {verbs: [list]}
//!   probability: 0.1
//!   delay: 200ms         # with or without a `then`
//!   then: {answer: {code: 429, retryAfter: 2s}}
//! - on: {verbs: [create, update], kind: ConfigMap}
//!   nth: 1
//!   then: loseAnswer     # or loseRequest, hang
//! - on: {verbs: [create], resource: pods}
//!   then: {handleLate: 30s}   # the connection breaks at once
//! - on: {verbs: [watch], resource: pods}
//!   then: {endWatch: {after: 10, how: expired}}   # or close, break, garbage
//! - on: {verbs: [watch]}
//!   then: {jitterEvents: 500ms}                   # or delayEvents
//! - on: {verbs: [watch], client: belayer}
//!   then: {hide: {name: web-0}}
//! - on: {client: belayer}
//!   then: {stale: 120}   # the client sees the cluster as of this version
//!
//! # One-time actions, with their time after the start.
//! timeline:
//! - {at: 30s, do: compact}
//! - {at: 40s, do: {clockSkew: -10m}}
//! - {at: 50s, do: {endWatches: {on: {resource: pods}, how: break}}}
//! - {at: 60s, do: {cutOff: 5s}}
//! - {at: 70s, do: {timeTravel: {on: {client: belayer}, versionsBack: 50, lasting: 10s}}}
//! ```
//!
//! Durations are numbers with a unit (`200ms`, `1.5s`, `2m`, `1h`). Codes that `answer` supports: 403,
//! 409, 410, 422, 429, 500, 503, 504; `message` sets the text of a 403 or 422.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Answer, Fault, FaultHandle, Faults, Match, WatchEnd};
use crate::cluster::Cluster;

/// Why a plan is invalid. Returned when a [`FaultPlan`](crate::FaultPlan) is read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultPlanError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// It is not YAML.
    #[error("invalid YAML: {0}")]
    Yaml(String),
    /// An invalid value.
    #[error("{path}: {message}")]
    Value {
        /// Path from the root, such as `faults[1].then`.
        path: String,
        /// What is wrong.
        message: String,
    },
}

/// Faults and a timeline, as in a file. The format is documented with an example in `faults.example.yaml`
/// next to the crate's README, and accepted by `belayer-sandbox serve --faults`.
///
/// ```
/// # use belayer_sandbox::{FaultPlan, Sandbox};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan: FaultPlan = "
/// faults:
/// - on: {verbs: [patch], resource: pods}
///   nth: 1
///   then: {answer: {code: 409}}
/// ".parse()?;
/// let sandbox = Sandbox::default();
/// let faults = sandbox.follow(&plan);
/// assert_eq!(faults[0].hits(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultPlan {
    #[serde(default)]
    faults: Vec<FaultSpec>,
    #[serde(default)]
    timeline: Vec<TimelineStep>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FaultSpec {
    #[serde(default)]
    on: Match,
    nth: Option<u64>,
    after: Option<u64>,
    every: Option<u64>,
    times: Option<u64>,
    #[serde(default, deserialize_with = "probability")]
    probability: Option<f64>,
    #[serde(default)]
    delay: Time,
    then: Option<Then>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Then {
    LoseRequest,
    LoseAnswer,
    HandleLate(Time),
    Hang,
    Answer(AnswerSpec),
    Stale(u64),
    EndWatch(EndSpec),
    DelayEvents(Time),
    JitterEvents(Time),
    Hide(Match),
    PauseWatches,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnswerSpec {
    code: u16,
    retry_after: Option<Time>,
    message: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndSpec {
    after: u64,
    how: End,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum End {
    Close,
    Break,
    Expired,
    Garbage,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TimelineStep {
    at: Time,
    #[serde(rename = "do")]
    action: Event,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Event {
    Compact,
    ClockSkew(Skew),
    EndWatches(EndWatches),
    CutOff(Time),
    TimeTravel(Travel),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndWatches {
    #[serde(default)]
    on: Match,
    how: End,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Travel {
    #[serde(default)]
    on: Match,
    versions_back: u64,
    lasting: Time,
}

#[derive(Debug, Clone, Copy, Default)]
struct Time(Duration);

#[derive(Debug, Clone, Copy)]
struct Skew(SignedDuration);

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = |_| serde::de::Error::custom(format!("invalid duration {text:?} (example: 200ms)"));
    text.parse::<SignedDuration>().map_err(wrong)
}

impl<'de> Deserialize<'de> for Skew {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        span(deserializer).map(Skew)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let span = span(deserializer)?;
        let time = Duration::try_from(span);
        time.map(Time)
            .map_err(|_| serde::de::Error::custom("the duration must not be negative"))
    }
}

fn probability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let given = Option::<f64>::deserialize(deserializer)?;
    match given {
        Some(p) if !(0.0..=1.0).contains(&p) => Err(serde::de::Error::custom(format!(
            "invalid probability {p}: must be between 0 and 1"
        ))),
        given => Ok(given),
    }
}

impl std::str::FromStr for FaultPlan {
    type Err = FaultPlanError;

    fn from_str(text: &str) -> Result<Self, FaultPlanError> {
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            let told = error.without_snippet().to_string();
            FaultPlanError::Yaml(told.lines().next().unwrap_or_default().to_owned())
        })?;
        // A file that contains only comments.
        if value.is_null() {
            return Ok(FaultPlan::default());
        }
        let plan: FaultPlan = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            FaultPlanError::Value {
                path: path.trim_end_matches(['?', '.']).to_owned(),
                message: error.into_inner().to_string(),
            }
        })?;
        plan.check()?;
        Ok(plan)
    }
}

impl FaultPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// When the file cannot be read, or says something that is not understood.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FaultPlanError> {
        fs::read_to_string(path)?.parse()
    }

    /// How many faults are active from the start.
    pub fn faults(&self) -> usize {
        self.faults.len()
    }

    /// How many actions the timeline has.
    pub fn steps(&self) -> usize {
        self.timeline.len()
    }

    fn check(&self) -> Result<(), FaultPlanError> {
        for (index, fault) in self.faults.iter().enumerate() {
            let wrong = |field: &str, message: String| FaultPlanError::Value {
                path: format!("faults[{index}]{field}"),
                message,
            };
            if let Some(Then::Answer(answer)) = &fault.then
                && answer.make().is_none()
            {
                let known = "403, 409, 410, 422, 429, 500, 503 or 504";
                let message = format!("unsupported code {}: use one of {known}", answer.code);
                return Err(wrong(".then.answer.code", message));
            }
            if fault.nth.is_some() && (fault.after.is_some() || fault.times.is_some()) {
                let message = "`nth` cannot be combined with `after` or `times`".to_owned();
                return Err(wrong("", message));
            }
            if fault.then.is_none() && fault.delay.0.is_zero() {
                return Err(wrong("", "set `then` or `delay`".to_owned()));
            }
        }
        Ok(())
    }

    pub(crate) fn start(&self, cluster: &Cluster, faults: &Faults) -> Vec<FaultHandle> {
        let handles = self
            .faults
            .iter()
            .map(|fault| faults.inject(fault.make()))
            .collect();
        if !self.timeline.is_empty() {
            let mut steps = self.timeline.clone();
            steps.sort_by_key(|step| step.at.0);
            tokio::spawn(carry_out(steps, cluster.clone(), faults.clone()));
        }
        handles
    }
}

async fn carry_out(steps: Vec<TimelineStep>, cluster: Cluster, faults: Faults) {
    let start = tokio::time::Instant::now();
    for step in steps {
        tokio::time::sleep_until(start + step.at.0).await;
        tracing::info!(step = ?step.action, "fault injected from the timeline");
        match step.action {
            Event::Compact => cluster.compact(cluster.version()),
            Event::ClockSkew(Skew(skew)) => cluster.clock().set_skew(skew),
            Event::EndWatches(end) => {
                faults.end_watches(&end.on, end.how.into());
            }
            Event::CutOff(Time(time)) => {
                faults.cut_off();
                let faults = faults.clone();
                later(time, move || faults.restore());
            }
            Event::TimeTravel(travel) => {
                let then = cluster.version().saturating_sub(travel.versions_back);
                let handle = faults.time_travel(travel.on, then);
                later(travel.lasting.0, move || handle.remove());
            }
        }
    }
}

fn later(time: Duration, act: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        act();
    });
}

impl From<End> for WatchEnd {
    fn from(end: End) -> Self {
        match end {
            End::Close => WatchEnd::Close,
            End::Break => WatchEnd::Break,
            End::Expired => WatchEnd::Expired,
            End::Garbage => WatchEnd::Garbage,
        }
    }
}

impl AnswerSpec {
    fn make(&self) -> Option<Answer> {
        let message = self
            .message
            .clone()
            .unwrap_or_else(|| "injected fault".into());
        Some(match (self.code, self.retry_after) {
            (403, _) => Answer::forbidden(message),
            (409, _) => Answer::conflict(),
            (410, _) => Answer::gone(),
            (422, _) => Answer::invalid(message),
            (429, Some(Time(wait))) => Answer::too_many_requests(wait),
            (429, None) => Answer::too_many_requests_now(),
            (500, _) => Answer::internal_error(),
            (503, Some(Time(wait))) => Answer::service_unavailable_for(wait),
            (503, None) => Answer::service_unavailable(),
            (504, _) => Answer::timeout(),
            _ => return None,
        })
    }
}

impl FaultSpec {
    fn make(&self) -> Fault {
        type Choose = fn(Fault, u64) -> Fault;
        let mut fault = Fault::on(self.on.clone()).delay(self.delay.0);
        let words: [(Option<u64>, Choose); 4] = [
            (self.nth, Fault::nth),
            (self.after, Fault::after),
            (self.every, Fault::every),
            (self.times, Fault::times),
        ];
        for (word, choose) in words {
            if let Some(word) = word {
                fault = choose(fault, word);
            }
        }
        if let Some(probability) = self.probability {
            fault = fault.probability(probability);
        }
        match &self.then {
            None => fault,
            Some(Then::LoseRequest) => fault.lose_request(),
            Some(Then::LoseAnswer) => fault.lose_answer(),
            Some(Then::HandleLate(Time(after))) => fault.handle_late(*after),
            Some(Then::Hang) => fault.hang(),
            // Unsupported codes were refused when the plan was read.
            Some(Then::Answer(spec)) => match spec.make() {
                Some(answer) => fault.answer(answer),
                None => fault,
            },
            Some(Then::Stale(version)) => fault.stale(*version),
            Some(Then::EndWatch(end)) => fault.end_watch_after(end.after, end.how.into()),
            Some(Then::DelayEvents(Time(time))) => fault.delay_events(*time),
            Some(Then::JitterEvents(Time(time))) => fault.jitter_events(*time),
            Some(Then::Hide(objects)) => fault.hide(objects.clone()),
            Some(Then::PauseWatches) => fault.pause_watches(),
        }
    }
}
