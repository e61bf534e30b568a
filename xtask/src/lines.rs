//! `cargo xtask lines`: counts lines of code, crate by crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

/// Crates that are not part of production.
const APART: &[&str] = &["checker", "demo", "sandbox", "workload"];

/// Count lines of code without comments, blank lines and test code
#[derive(Debug, Args)]
pub(crate) struct Lines {
    /// The repository, or another version of it
    #[arg(default_value = ".")]
    repository: PathBuf,
}

impl Lines {
    /// Prints a line per crate, and the sum of production crates.
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let crates = self.repository.join("crates");
        let mut sum = 0;
        let mut folders: Vec<PathBuf> = fs::read_dir(&crates)
            .with_context(|| crates.display().to_string())?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        folders.sort();
        for folder in folders {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let lines = of_crate(&folder.join("src"))?;
            let apart = APART.contains(&&*name);
            if !apart {
                sum += lines;
            }
            let note = if apart { " (not counted below)" } else { "" };
            println!("{lines:>7}  {name}{note}");
        }
        println!("{sum:>7}  lines of code that production runs");
        Ok(ExitCode::SUCCESS)
    }
}

fn of_crate(src: &Path) -> Result<usize> {
    let mut files = Vec::new();
    collect(src, &mut files)?;
    let mut texts = Vec::new();
    let mut only_tests: BTreeSet<PathBuf> = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (lines, modules) = count(&text);
        only_tests.extend(modules.iter().map(|module| below(&file).join(module)));
        texts.push((file, lines));
    }
    let counted = texts.into_iter().filter(|(file, _)| {
        let module = file.with_extension("");
        !only_tests.iter().any(|tests| module.starts_with(tests))
    });
    Ok(counted.map(|(_, lines)| lines).sum())
}

/// The folder of a file's modules.
fn below(file: &Path) -> PathBuf {
    let is_root = ["lib.rs", "main.rs", "mod.rs"]
        .iter()
        .any(|root| file.ends_with(root));
    if is_root {
        file.parent().unwrap_or(file).to_owned()
    } else {
        file.with_extension("")
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Lines of code, and the names of test-only modules in separate files. The text is formatted by rustfmt:
/// an item ends at its semicolon or at a closing brace with the indentation of its first line.
fn count(text: &str) -> (usize, Vec<String>) {
    let mut lines = 0;
    let mut modules = Vec::new();
    let mut all = text.lines();
    while let Some(line) = all.next() {
        let code = line.trim_start();
        if code.is_empty() || code.starts_with("//") {
            continue;
        }
        if code != "#[cfg(test)]" {
            lines += 1;
            continue;
        }
        let indent = &line[..line.len() - code.len()];
        let end = format!("{indent}}}");
        for line in all.by_ref() {
            let code = line.trim();
            let item = code.strip_prefix("pub(crate) ").unwrap_or(code);
            let module = item.strip_prefix("mod ");
            modules.extend(
                module
                    .and_then(|rest| rest.strip_suffix(';'))
                    .map(str::to_owned),
            );
            let is_attribute = code.starts_with("#[") || code.starts_with("//");
            if line == end
                || (!is_attribute
                    && line.starts_with(indent)
                    && code.ends_with(';')
                    && is_first(line, indent))
            {
                break;
            }
        }
    }
    (lines, modules)
}

/// Whether a line has exactly this indentation.
fn is_first(line: &str, indent: &str) -> bool {
    line[indent.len()..].starts_with(|first: char| !first.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_are_not_code() {
        let text = "//! A.\n\nuse a;\n#[cfg(test)]\nuse b;\n\n/// B.\nfn f() {\n    g(); // C.\n}\n\n#[cfg(test)]\n#[rstest]\nmod tests {\n    use super::*;\n}\n#[cfg(test)]\nmod more;\nfn h() {}\n";
        assert_eq!(count(text), (5, vec!["more".to_owned()]));
    }
}
