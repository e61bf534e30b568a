//! `cargo xtask survivors`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::root;

/// The survivors that are known, each with the reason.
const LIST: &str = ".cargo/survivors.txt";

/// How many of a hundred changes tests must notice.
const REQUIRED: usize = 95;

/// Check what cargo-mutants has found: tests must notice 95 % of the changes
///
/// Prints the changes that no test noticed and that `.cargo/survivors.txt` does not explain. A test that does not end counts as
/// having noticed the change; changes that do not compile do not count. The exit code is 1 below 95 %.
#[derive(Debug, Args)]
pub(crate) struct Survivors {
    /// The folder that `cargo mutants` has written
    #[arg(default_value = "mutants.out", value_name = "FOLDER")]
    folder: PathBuf,
}

impl Survivors {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let listed = fs::read_to_string(root().join(LIST)).context(LIST)?;
        let found = Found::read(&self.folder)?;
        for name in found.unexplained(&listed)? {
            println!("not in {LIST}: {name}");
        }
        println!(
            "{} of {} changes noticed",
            found.noticed,
            found.noticed + found.missed.len()
        );
        Ok(ExitCode::from(u8::from(!found.is_enough())))
    }
}

/// The result of a run.
#[derive(Debug, Default)]
struct Found {
    noticed: usize,
    missed: BTreeSet<String>,
}

impl Found {
    fn read(folder: &Path) -> Result<Self> {
        let lines = |name: &str| -> Result<Vec<String>> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        Ok(Self {
            noticed: lines("caught.txt")?.len() + lines("timeout.txt")?.len(),
            missed: lines("missed.txt")?.into_iter().collect(),
        })
    }

    /// A run without any change has shown nothing.
    fn is_enough(&self) -> bool {
        let all = self.noticed + self.missed.len();
        all > 0 && self.noticed * 100 >= all * REQUIRED
    }

    fn unexplained<'a>(&'a self, listed: &str) -> Result<Vec<&'a str>> {
        let listed = names(listed)?;
        let missed = self.missed.iter().map(String::as_str);
        Ok(missed
            .filter(|name| !listed.contains(&*without_place(name)))
            .collect())
    }
}

/// The names in the list, each of which follows its reason: a paragraph of comments.
fn names(listed: &str) -> Result<BTreeSet<&str>> {
    let mut names = BTreeSet::new();
    let mut has_reason = false;
    for line in listed.lines() {
        if line.is_empty() {
            has_reason = false;
        } else if line.starts_with('#') {
            has_reason = true;
        } else {
            ensure!(has_reason, "{LIST} has no reason above {line}");
            names.insert(line);
        }
    }
    Ok(names)
}

/// `a.rs:12:5: replace x` without line and column, which other changes of the file move.
fn without_place(name: &str) -> String {
    let (place, what) = name.split_once(": ").unwrap_or((name, ""));
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn missed(count: usize) -> BTreeSet<String> {
        (0..count)
            .map(|n| format!("a.rs:{n}:5: replace x with y"))
            .collect()
    }

    #[rstest]
    #[case::enough(95, 5, true)]
    #[case::one_more_is_missed(95, 6, false)]
    #[case::nothing_ran(0, 0, false)]
    fn nineteen_of_twenty_must_be_noticed(
        #[case] noticed: usize,
        #[case] survivors: usize,
        #[case] expected: bool,
    ) {
        let missed = missed(survivors);
        assert_eq!(Found { noticed, missed }.is_enough(), expected);
    }

    #[test]
    fn what_the_list_explains_is_not_named() {
        let mut found = Found {
            noticed: 0,
            missed: missed(2),
        };
        found.missed.insert("b.rs:1:1: replace z".to_owned());
        let listed = "# Why.\na.rs: replace x with y\n";
        assert_eq!(found.unexplained(listed).unwrap(), ["b.rs:1:1: replace z"]);
    }

    #[test]
    fn each_survivor_has_a_reason() {
        let listed = fs::read_to_string(root().join(LIST)).unwrap();
        let known = names(&listed).unwrap();
        assert!(!known.is_empty());
        for name in known {
            let (file, _) = name.split_once(": ").unwrap();
            assert!(root().join(file).is_file(), "{name}");
        }
        let error = names("# Why.\na: b\n\nc: d\n").unwrap_err().to_string();
        assert!(error.ends_with("above c: d"), "{error}");
    }

    #[test]
    fn the_files_of_a_run_are_read() {
        let folder = std::env::temp_dir().join(format!("survivors-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = [
            ("caught.txt", "a\nb\n"),
            ("timeout.txt", "c\n"),
            ("missed.txt", "d\n"),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let found = Found::read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((found.noticed, found.missed.len()), (3, 1));
        assert!(Found::read(&folder).is_err());
    }
}
