//! `belayer __complete`: completions for a partial command line, for `kubectl belayer` and shells. Kinds, names and
//! namespaces are read from the cluster.

mod line;
mod live;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use clap::{Args, Command};

use line::{Line, Next};

use crate::exit::Failure;
use crate::screen::print_data;

/// Arguments of `belayer __complete`.
#[derive(Debug, Clone, Args)]
pub struct CompleteArguments {
    /// The words after the name of the program; the last one is completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// What the shell does besides, as in kubectl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    /// It completes names of files.
    Files = 0,
    /// It does not.
    NoFiles = 4,
}

/// A possible word, with a description.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    word: String,
    about: String,
}

impl Candidate {
    fn new(word: impl Into<String>) -> Self {
        Self {
            word: word.into(),
            about: String::new(),
        }
    }
}

/// Prints one candidate per line, and what the shell does besides. A cluster that does not answer has no candidates.
///
/// # Errors
///
/// If they cannot be printed.
pub(crate) async fn run(arguments: &CompleteArguments, mut root: Command) -> Result<(), Failure> {
    root.build();
    let line = Line::read(&root, &arguments.words);
    let (candidates, directive) = match line.next() {
        Next::Choices(choices) => (choices, Directive::NoFiles),
        Next::Files => (Vec::new(), Directive::Files),
        Next::Live(wanted) => (live::find(&line, &wanted).await, Directive::NoFiles),
    };
    print_data(text(&line, candidates, directive).as_bytes())
}

fn text(line: &Line<'_>, candidates: Vec<Candidate>, directive: Directive) -> String {
    let mut text = String::new();
    for Candidate { word, about } in candidates {
        let word = format!("{}{word}", line.prefix());
        if !word.starts_with(line.last()) {
            continue;
        }
        text.push_str(&word);
        if let Some(first) = about.lines().next() {
            let _ = write!(text, "\t{first}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, ":{}", directive as u8);
    text
}
