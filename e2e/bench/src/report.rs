//! The result of a benchmark: a table, goals, and files for the documents.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::chart;
use super::chart::figure;
use super::samples::Samples;

/// The result of a benchmark.
#[derive(Debug)]
pub(crate) struct Report {
    name: &'static str,
    title: String,
    metrics: Vec<(&'static str, &'static str)>,
    subjects: Vec<Subject>,
    goals: Vec<Goal>,
    limits: Vec<Limit>,
    notes: Vec<String>,
}

/// A measured subject.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    name: String,
    samples: Vec<Samples>,
}

/// A ratio to reach.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    /// The metric.
    pub(crate) metric: &'static str,
    /// The subject.
    pub(crate) of: String,
    /// The subject to compare with.
    pub(crate) against: String,
    /// The maximum ratio.
    pub(crate) at_most: f64,
}

/// An absolute figure to reach.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    /// The metric.
    pub(crate) metric: &'static str,
    /// The subject.
    pub(crate) of: String,
    /// The maximum.
    pub(crate) at_most: f64,
}

impl Report {
    /// A report with these metrics: name and unit of each.
    pub(crate) fn new(
        name: &'static str,
        title: impl Into<String>,
        metrics: &[(&'static str, &'static str)],
    ) -> Self {
        Self {
            name,
            title: title.into(),
            metrics: metrics.to_vec(),
            subjects: Vec::new(),
            goals: Vec::new(),
            limits: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a round of a subject: its figures, in the order of the metrics; NaN if not
    /// measured.
    pub(crate) fn round(&mut self, subject: &str, figures: &[f64]) {
        let at = self.subjects.iter().position(|have| have.name == subject);
        let at = at.unwrap_or_else(|| {
            self.subjects.push(Subject {
                name: subject.to_owned(),
                samples: vec![Samples::default(); self.metrics.len()],
            });
            self.subjects.len() - 1
        });
        for (samples, figure) in self.subjects[at].samples.iter_mut().zip(figures) {
            if figure.is_finite() {
                samples.push(*figure);
            }
        }
    }

    /// Adds a remark.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// A goal.
    pub(crate) fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }

    /// A limit.
    pub(crate) fn limit(&mut self, limit: Limit) {
        self.limits.push(limit);
    }

    /// Of these subjects the one with the lowest median.
    pub(crate) fn best(&self, metric: &str, subjects: &[String]) -> Option<String> {
        let measured = subjects
            .iter()
            .filter_map(|name| Some((self.median(name, metric)?, name)));
        let best = measured.min_by(|(one, _), (other, _)| one.total_cmp(other));
        best.map(|(_, name)| name.clone())
    }

    /// The median of a subject.
    pub(crate) fn median(&self, subject: &str, metric: &str) -> Option<f64> {
        let at = self.metrics.iter().position(|(name, _)| *name == metric)?;
        let subject = self.subjects.iter().find(|have| have.name == subject)?;
        subject.samples.get(at)?.median()
    }

    /// The goal as text, and whether it was reached; `None` if it was not measured.
    fn judged(&self, goal: &Goal) -> (String, Option<bool>) {
        let Goal {
            metric,
            of,
            against,
            at_most,
        } = goal;
        let ratio = self
            .median(of, metric)
            .zip(self.median(against, metric))
            .map(|(of, against)| of / against);
        let Some(ratio) = ratio else {
            return (
                format!("{metric}: {of} against {against} was not measured"),
                None,
            );
        };
        let reached = ratio <= *at_most;
        let verdict = if reached { "reached" } else { "MISSED" };
        let printed = format!(
            "{metric}: {of} / {against} = {ratio:.2}, goal at most {at_most:.2}: {verdict}"
        );
        (printed, Some(reached))
    }

    /// The limit as text, and whether it was kept; `None` if it was not measured.
    fn kept(&self, limit: &Limit) -> (String, Option<bool>) {
        let Limit {
            metric,
            of,
            at_most,
        } = limit;
        let Some(median) = self.median(of, metric) else {
            return (format!("{metric}: {of} was not measured"), None);
        };
        let reached = median <= *at_most;
        let verdict = if reached { "reached" } else { "MISSED" };
        let (median, at_most) = (figure(median), figure(*at_most));
        let printed = format!("{metric}: {of} needs {median}, goal at most {at_most}: {verdict}");
        (printed, Some(reached))
    }

    fn verdicts(&self) -> Vec<(String, Option<bool>)> {
        let limits = self.limits.iter().map(|limit| self.kept(limit));
        limits
            .chain(self.goals.iter().map(|goal| self.judged(goal)))
            .collect()
    }

    /// The report as Markdown, for the terminal and the documents.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n| |", self.title);
        for (name, unit) in &self.metrics {
            let _ = write!(text, " {name} ({unit}) |");
        }
        text.push_str("\n| --- |");
        text.push_str(&" ---: |".repeat(self.metrics.len()));
        text.push('\n');
        for subject in &self.subjects {
            let _ = write!(text, "| {} |", subject.name);
            for samples in &subject.samples {
                let _ = write!(text, " {} |", cell(samples));
            }
            text.push('\n');
        }
        text.push('\n');
        for (printed, _) in self.verdicts() {
            let _ = writeln!(text, "- {printed}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }

    fn json(&self) -> Value {
        let subjects: Vec<_> = self
            .subjects
            .iter()
            .map(|subject| {
                let figures = self.metrics.iter().zip(&subject.samples);
                let figures: serde_json::Map<String, Value> = figures
                    .map(|((name, _), samples)| ((*name).to_owned(), json!(samples.sorted())))
                    .collect();
                json!({ "name": subject.name, "rounds": figures })
            })
            .collect();
        let goals: Vec<_> = self
            .verdicts()
            .into_iter()
            .map(|(printed, reached)| json!({ "goal": printed, "reached": reached }))
            .collect();
        json!({
            "name": self.name, "title": self.title, "subjects": subjects,
            "units": self.metrics.iter().map(|(name, unit)| json!({ "metric": name, "unit": unit })).collect::<Vec<_>>(),
            "goals": goals, "notes": self.notes,
        })
    }

    /// Writes `NAME.md`, `NAME.json` and one picture per metric into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let write = |file: String, text: String| {
            let path = folder.join(file);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        write(format!("{}.md", self.name), self.markdown())?;
        let json = serde_json::to_string_pretty(&self.json())?;
        write(format!("{}.json", self.name), json)?;
        for (at, (metric, unit)) in self.metrics.iter().enumerate() {
            let bars: Vec<_> = self
                .subjects
                .iter()
                .filter_map(|subject| Some((&*subject.name, subject.samples.get(at)?)))
                .collect();
            let file = format!("{}-{}.svg", self.name, metric.replace(' ', "-"));
            write(
                file,
                chart::draw(&format!("{}: {metric}", self.title), unit, &bars),
            )?;
        }
        Ok(())
    }

    /// Writes it into a document, between the two comments with its name. `size` is that of the command line, which the command
    /// below the table then names.
    pub(crate) fn write_into(&self, document: &Path, size: Option<usize>) -> Result<()> {
        let read = || format!("read {}", document.display());
        let text = fs::read_to_string(document).with_context(read)?;
        let text = self.replaced_in(&text, size).with_context(|| {
            let (start, end) = self.marks();
            format!("{} has no {start} and {end}", document.display())
        })?;
        fs::write(document, text).with_context(|| format!("write {}", document.display()))
    }

    fn marks(&self) -> (String, String) {
        let name = self.name;
        (
            format!("<!-- bench {name} -->"),
            format!("<!-- end {name} -->"),
        )
    }

    fn replaced_in(&self, text: &str, size: Option<usize>) -> Option<String> {
        let (start, end) = self.marks();
        let (before, rest) = text.split_once(&start)?;
        let (_, after) = rest.split_once(&end)?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let samples = self.subjects.iter().flat_map(|one| &one.samples);
        let rounds = samples.map(Samples::rounds).max().unwrap_or(0);
        let size = size.map_or_else(String::new, |size| format!(" --size {size}"));
        let command = format!(
            "`cargo xtask bench {} --rounds {rounds}{size}`, {cores} processors",
            self.name
        );
        let body = self.markdown();
        Some(format!("{before}{start}\n{body}\n{command}\n{end}{after}"))
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        anstream::println!("{}", self.markdown());
    }
}

/// Median, and the spread where there was more than one round.
fn cell(samples: &Samples) -> String {
    let (Some(least), Some(median), Some(most)) =
        (samples.least(), samples.median(), samples.most())
    else {
        return "".to_owned();
    };
    if samples.sorted().len() == 1 {
        return figure(median);
    }
    format!("{} ({}–{})", figure(median), figure(least), figure(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("drain", "10 pods", &[("wall", "s"), ("CPU", "s")]);
        for wall in [2.0, 3.0, 4.0] {
            report.round("Belayer", &[wall, 1.0]);
            report.round("raw", &[wall / 2.0, 0.5]);
        }
        report
    }

    fn goal(at_most: f64) -> Goal {
        Goal {
            metric: "wall",
            of: "Belayer".to_owned(),
            against: "raw".to_owned(),
            at_most,
        }
    }

    #[test]
    fn a_table_shows_median_and_spread() {
        let text = report().markdown();
        assert!(
            text.contains("| Belayer | 3.00 (2.00–4.00) | 1.00 (1.00–1.00) |"),
            "{text}"
        );
    }

    #[test]
    fn a_goal_is_reached_or_missed() {
        let (printed, reached) = report().judged(&goal(2.0));
        assert_eq!(
            printed,
            "wall: Belayer / raw = 2.00, goal at most 2.00: reached"
        );
        assert_eq!(reached, Some(true));
        assert_eq!(report().judged(&goal(1.9)).1, Some(false));
    }

    #[test]
    fn what_was_not_measured_is_not_reached() {
        let unknown = Goal {
            against: "unknown".to_owned(),
            ..goal(2.0)
        };
        assert_eq!(report().judged(&unknown).1, None);
    }

    #[test]
    fn a_limit_is_kept_or_missed() {
        let limit = |at_most| Limit {
            metric: "wall",
            of: "Belayer".to_owned(),
            at_most,
        };
        let (printed, kept) = report().kept(&limit(3.0));
        assert_eq!(
            printed,
            "wall: Belayer needs 3.00, goal at most 3.00: reached"
        );
        assert_eq!(kept, Some(true));
        assert_eq!(report().kept(&limit(2.9)).1, Some(false));
    }

    #[test]
    fn a_document_gets_the_table_between_its_comments() {
        let text = "a\n<!-- bench drain -->\nold\n<!-- end drain -->\nb\n";
        let new = report().replaced_in(text, Some(10)).unwrap();
        assert!(
            new.starts_with("a\n<!-- bench drain -->\n### 10 pods"),
            "{new}"
        );
        assert!(new.ends_with("\n<!-- end drain -->\nb\n"), "{new}");
        assert!(
            new.contains("`cargo xtask bench drain --rounds 3 --size 10`") && !new.contains("old"),
            "{new}"
        );
        assert_eq!(report().replaced_in("nothing", None), None);
    }

    #[test]
    fn files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        report().write(folder.path()).unwrap();
        for file in ["drain.md", "drain.json", "drain-wall.svg", "drain-CPU.svg"] {
            assert!(folder.path().join(file).is_file(), "{file}");
        }
    }
}
