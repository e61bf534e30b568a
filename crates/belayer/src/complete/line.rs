//! The words of a command line that is not complete.

use std::collections::BTreeMap;

use clap::{Arg, Command};

use super::Candidate;

/// The words before the last one, understood as far as possible.
pub(super) struct Line<'a> {
    command: &'a Command,
    /// Values of flags, by the id of the argument.
    flags: BTreeMap<&'a str, &'a str>,
    positional: Vec<&'a str>,
    /// The flag whose value the last word is.
    pending: Option<&'a Arg>,
    last: &'a str,
}

/// What can come next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// One of these.
    Choices(Vec<Candidate>),
    /// The name of a file.
    Files,
    /// What is in the cluster.
    Live(Wanted),
}

/// What is read from the cluster or its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Contexts,
    Namespaces,
    Kinds,
    /// Objects of the kind with this name.
    Names(String),
}

impl<'a> Line<'a> {
    /// Reads the words; those that the command line does not know are skipped.
    pub(super) fn read(root: &'a Command, words: &'a [String]) -> Self {
        let (last, before) = match words.split_last() {
            Some((last, before)) => (last.as_str(), before),
            None => ("", [].as_slice()),
        };
        let mut line = Self {
            command: root,
            flags: BTreeMap::new(),
            positional: Vec::new(),
            pending: None,
            last,
        };
        for word in before {
            line.add(word);
        }
        line
    }

    fn add(&mut self, word: &'a str) {
        if let Some(flag) = self.pending.take() {
            self.flags.insert(flag.get_id().as_str(), word);
        } else if word.starts_with('-') {
            let Some((flag, value)) = self.flag(word) else {
                return;
            };
            match value {
                Some(value) => {
                    self.flags.insert(flag.get_id().as_str(), value);
                }
                None if takes_next(flag) => self.pending = Some(flag),
                None => {}
            }
        } else if let Some(command) = self.command.find_subcommand(word) {
            self.command = command;
        } else {
            self.positional.push(word);
        }
    }

    /// The argument of `--flag`, `--flag=value`, `-f` or `-fvalue`, and the value.
    fn flag(&self, word: &'a str) -> Option<(&'a Arg, Option<&'a str>)> {
        let mut all = self.command.get_arguments();
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, None),
            };
            let flag = all.find(|flag| {
                let names = flag.get_long_and_visible_aliases().unwrap_or_default();
                names.contains(&name)
            });
            return Some((flag?, value));
        }
        let short = word.strip_prefix('-')?;
        let name = short.chars().next()?;
        let flag = all.find(|flag| flag.get_short() == Some(name))?;
        let value = &short[name.len_utf8()..];
        let value = value.strip_prefix('=').unwrap_or(value);
        Some((flag, Some(value).filter(|value| !value.is_empty())))
    }

    /// The last word as it is written so far.
    pub(super) fn last(&self) -> &'a str {
        self.last
    }

    /// The beginning of the last word that is not part of a candidate.
    pub(super) fn prefix(&self) -> &'a str {
        let end = match (self.pending, self.last.starts_with("--")) {
            (None, true) => self.last.find('='),
            (None, false) if self.is_object() => self.last.find('/'),
            _ => None,
        };
        end.map_or("", |end| &self.last[..=end])
    }

    /// The value of a flag.
    pub(super) fn value(&self, id: &str) -> Option<&'a str> {
        self.flags.get(id).copied()
    }

    /// What the last word can be.
    pub(super) fn next(&self) -> Next {
        if let Some(flag) = self.pending {
            return values(flag);
        }
        if self.last.starts_with('-') {
            return match self.flag(self.last) {
                Some((flag, _)) if self.last.contains('=') => values(flag),
                _ => Next::Choices(self.long_flags()),
            };
        }
        if self.is_object() {
            return self.object();
        }
        Next::Choices(self.commands())
    }

    /// Whether the last word is the object of `explain`.
    fn is_object(&self) -> bool {
        let mut all = self.command.get_positionals();
        all.any(|argument| argument.get_id() == "object")
    }

    /// `KIND/NAME` or `KIND NAME`.
    fn object(&self) -> Next {
        let kind = match (self.positional.as_slice(), self.last.split_once('/')) {
            ([], Some((kind, _))) => kind,
            ([kind], None) if !kind.contains('/') => kind,
            ([], None) => return Next::Live(Wanted::Kinds),
            _ => return Next::Choices(Vec::new()),
        };
        Next::Live(Wanted::Names(kind.to_owned()))
    }

    fn commands(&self) -> Vec<Candidate> {
        let shown = self
            .command
            .get_subcommands()
            .filter(|one| !one.is_hide_set());
        let candidate = |one: &Command| Candidate {
            word: one.get_name().to_owned(),
            about: about(one.get_about()),
        };
        shown.map(candidate).collect()
    }

    fn long_flags(&self) -> Vec<Candidate> {
        let shown = self
            .command
            .get_arguments()
            .filter(|flag| !flag.is_hide_set());
        let candidate = |flag: &Arg| {
            Some(Candidate {
                word: format!("--{}", flag.get_long()?),
                about: about(flag.get_help()),
            })
        };
        shown.filter_map(candidate).collect()
    }
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the next word is the value. An optional value is written after `=`.
fn takes_next(flag: &Arg) -> bool {
    let number = flag.get_num_args();
    flag.get_action().takes_values() && number.is_none_or(|number| number.min_values() > 0)
}

fn values(flag: &Arg) -> Next {
    let known = flag.get_possible_values();
    if !known.is_empty() {
        let shown = known.iter().filter(|value| !value.is_hide_set());
        let candidate = |value: &clap::builder::PossibleValue| Candidate {
            word: value.get_name().to_owned(),
            about: about(value.get_help()),
        };
        return Next::Choices(shown.map(candidate).collect());
    }
    match flag.get_id().as_str() {
        "namespace" | "own_namespace" | "except_namespace" => Next::Live(Wanted::Namespaces),
        "context" => Next::Live(Wanted::Contexts),
        "kubeconfig" | "config" | "dir" => Next::Files,
        _ => Next::Choices(Vec::new()),
    }
}
