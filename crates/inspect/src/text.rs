//! The text output of `stuck`: wrapped to the terminal, each command on its own line for copying.
//!
//! ```no_run
//! use belayer_inspect::{Inspector, Query, text};
//!
//! # async fn print(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let report = Inspector::new(client).stuck(&Query::default()).await?;
//! println!("{}", text::report(&report, text::Style::default(), &text::Plain));
//! # Ok(())
//! # }
//! ```

mod explanation;
mod wrap;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use belayer_core::words::one_or_many;

use crate::report::{Group, Report, Step, StuckObject, UnseenReason, Verdict, age};
use crate::untrusted::word;
pub use explanation::explanation;
pub use wrap::{row, wrapped};

/// Maximum number of other groups that are shown with an object.
const ALSO_IN: usize = 8;

/// Maximum number of objects shown per group without `-o wide`.
const SHOWN: usize = 10;

/// Layout of the text. The [module's example](self) takes the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Maximum line length in columns. Commands are never wrapped.
    pub width: usize,
    /// Level of detail.
    pub detail: Detail,
}

impl Style {
    /// The text, with every line but the first indented by so many columns.
    pub(crate) fn wrapped(self, text: &str, indent: usize) -> String {
        wrapped(text, self.width.saturating_sub(indent), &" ".repeat(indent))
    }
}

/// Level of detail. Part of a [`Style`], as in the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What a user needs to act.
    Usual,
    /// All objects, and the sources (`-o wide`).
    Wide,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 80,
            detail: Detail::Usual,
        }
    }
}

/// Applies colours or other markup to parts of the text. The [module's example](self) has plain
/// text.
pub trait Paint {
    /// A verdict.
    fn verdict(&self, verdict: Verdict, text: &str) -> String;
    /// A heading.
    fn bold(&self, text: &str) -> String;
    /// Secondary text.
    fn dim(&self, text: &str) -> String;
}

/// No markup. The [module's example](self) uses it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Paint for Plain {
    fn verdict(&self, _: Verdict, text: &str) -> String {
        text.to_owned()
    }

    fn bold(&self, text: &str) -> String {
        text.to_owned()
    }

    fn dim(&self, text: &str) -> String {
        text.to_owned()
    }
}

/// The objects of the report, one per line, as `belayer explain` takes them: `pods/web-0 -n shop`.
/// Of the [report](crate::text).
pub fn names(report: &Report) -> String {
    let mut seen = BTreeSet::new();
    let mut out = String::new();
    for object in report.groups.iter().flat_map(|group| &group.objects) {
        if !seen.insert(object.place()) {
            continue;
        }
        let name = format!("{}/{}", object.resource, object.name);
        out.push_str(&word(&name));
        if !object.namespace.is_empty() {
            let _ = write!(out, " -n {}", object.namespace);
        }
        out.push('\n');
    }
    out
}

/// The whole report. The [module's example](self) prints one.
pub fn report(report: &Report, style: Style, paint: &dyn Paint) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", paint.bold(&opening(report)));
    for group in &report.groups {
        out.push('\n');
        out.push_str(&self::group(group, style, paint));
    }
    unseen(report, style, &mut out);
    if report.summary.kinds == 0 && !report.unseen.is_empty() {
        let text = match &report.namespace {
            Some(namespace) => format!("You may not list anything in namespace {namespace}."),
            None => {
                "Listing over all namespaces is not allowed: use -n NAME to inspect one namespace."
                    .to_owned()
            }
        };
        let _ = writeln!(out, "{}", style.wrapped(&text, 0));
    }
    out.push('\n');
    out.push_str(&paint.dim(&style.wrapped(&closing(report), 0)));
    out.push('\n');
    out
}

fn opening(report: &Report) -> String {
    let summary = &report.summary;
    let causes = report.groups.len();
    match (summary.stuck, causes) {
        (0, 0) if summary.left_out > 0 => {
            "No object is stuck in Terminating among those selected.".to_owned()
        }
        (0, 0) if summary.complete => "No object is stuck in Terminating.".to_owned(),
        (0, 0) => {
            "No object is stuck in Terminating among the kinds that could be listed.".to_owned()
        }
        (0, _) => {
            "No object is stuck in Terminating yet, but deletions will be blocked.".to_owned()
        }
        (1, 1) => "1 object is stuck in Terminating.".to_owned(),
        (1, n) => format!("1 object is stuck in Terminating ({n} causes)."),
        (s, 1) => format!("{s} objects are stuck in Terminating (1 cause)."),
        (s, n) => format!("{s} objects are stuck in Terminating ({n} causes)."),
    }
}

fn closing(report: &Report) -> String {
    let summary = &report.summary;
    let within = match summary.within_grace {
        0 => String::new(),
        1 => " 1 more object is being deleted and within its grace period.".to_owned(),
        n => format!(" {n} more objects are being deleted and within their grace period."),
    };
    let left_out = match summary.left_out {
        0 => String::new(),
        n => {
            let objects = one_or_many(n, "more object is stuck", "more objects are stuck");
            format!(" {objects} and left out by age or labels.")
        }
    };
    format!(
        "Read {} objects of {} kinds in {} requests; nothing was changed.{within}{left_out}",
        summary.objects, summary.kinds, summary.requests
    )
}

/// One group. A group of a [report](crate::text).
pub fn group(group: &Group, style: Style, paint: &dyn Paint) -> String {
    let mut out = String::new();
    heading(group, style, paint, &mut out);
    objects(group, style, paint, &mut out);
    let mut fields = |name: &str, lines: &[String]| {
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { name } else { "" };
            field(label, line, style, paint, &mut out);
        }
    };
    if let Some(known) = &group.known {
        let mut lines = vec![format!("{}: {}", known.owner, known.guards)];
        if style.detail == Detail::Wide {
            lines.push(format!(
                "Lost if removed by force: {}",
                known.lost_if_forced
            ));
            lines.push(known.source.clone());
        }
        fields("Owner", &lines);
    }
    fields("Proof", &group.proof);
    fields("Missing", &group.missing);
    steps(&group.next, style, paint, &mut out);
    out
}

/// A label, and its text in a column beside it.
fn field(label: &str, text: &str, style: Style, paint: &dyn Paint, out: &mut String) {
    let text = style.wrapped(text, 16);
    let _ = writeln!(out, "    {} {text}", paint.dim(&format!("{label:<9}")));
}

/// Number, verdict and headline. The painted verdict is longer than it is shown, so the line is wrapped before.
fn heading(group: &Group, style: Style, paint: &dyn Paint, out: &mut String) {
    let verdict = group.verdict.words();
    let start = format!("[{}] {verdict}:", group.number);
    let whole = style.wrapped(&format!("{start} {}", group.headline), 4);
    let headline = whole.strip_prefix(&start).unwrap_or(&whole).trim_start();
    let verdict = paint.verdict(group.verdict, verdict);
    let _ = writeln!(
        out,
        "[{}] {verdict}: {}",
        group.number,
        paint.bold(headline)
    );
}

fn steps(steps: &[Step], style: Style, paint: &dyn Paint, out: &mut String) {
    let mut printed = None;
    for step in steps {
        let label = if printed.is_none() { "Next" } else { "" };
        // The text of a step that applies to several objects is printed once.
        if printed != Some(&step.say) {
            let colon = if step.command.is_some() { ":" } else { "" };
            let text = format!("{}{colon}", step.say);
            field(label, &text, style, paint, out);
        }
        printed = Some(&step.say);
        if let Some(command) = &step.command {
            let _ = writeln!(out, "                  {}", paint.bold(command));
        }
    }
}

fn objects(group: &Group, style: Style, paint: &dyn Paint, out: &mut String) {
    let shown = match style.detail {
        Detail::Usual => SHOWN,
        Detail::Wide => usize::MAX,
    };
    let places: Vec<String> = group
        .objects
        .iter()
        .take(shown)
        .map(StuckObject::place)
        .collect();
    let width = places
        .iter()
        .map(|place| place.chars().count())
        .max()
        .unwrap_or(0);
    for (object, place) in group.objects.iter().zip(&places) {
        let mut cells = vec![format!(
            "    {place:<width$}  {:>5}",
            age(object.age_seconds)
        )];
        if let Some(by) = &object.set_by {
            cells.push(format!("set by {}", by.manager));
        }
        if !object.also_in.is_empty() {
            let shown = object.also_in.iter().take(ALSO_IN);
            let mut numbers: Vec<_> = shown.map(|n| format!("[{n}]")).collect();
            if let more @ 1.. = object.also_in.len() - numbers.len() {
                numbers.push(format!("and {more} more"));
            }
            cells.push(format!("also {}", numbers.join(" ")));
        }
        let _ = writeln!(out, "{}", row(&cells, "  ", style.width));
        for detail in &object.detail {
            let text = style.wrapped(detail, 8);
            let _ = writeln!(out, "      {} {text}", paint.dim("-"));
        }
    }
    let more = group.objects.len().saturating_sub(places.len());
    if more > 0 {
        let _ = writeln!(
            out,
            "    {}",
            paint.dim(&format!("and {more} more (-o wide shows all)"))
        );
    }
}

fn unseen(report: &Report, style: Style, out: &mut String) {
    for (reason, heading) in [
        (UnseenReason::Failed, "Could not be listed"),
        (UnseenReason::NotAllowed, "Not listed, permission denied"),
    ] {
        let these: Vec<String> = report
            .unseen
            .iter()
            .filter(|unseen| unseen.reason == reason)
            .map(|unseen| match reason {
                UnseenReason::Failed => format!("{} ({})", unseen.resource, unseen.message),
                UnseenReason::NotAllowed => unseen.resource.clone(),
            })
            .collect();
        if !these.is_empty() {
            let text = format!("{heading}: {}", these.join(", "));
            let text = style.wrapped(&text, 2);
            let _ = write!(out, "\n{text}\n");
        }
    }
}
