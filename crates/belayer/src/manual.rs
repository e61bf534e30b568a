//! Shell completions, manual pages, and the name of the program in both.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Failure;
use crate::screen::print_data;

/// File name under which kubectl finds this program as a plugin.
const PLUGIN: &str = "kubectl-belayer";

pub(crate) const COMPLETIONS_HELP: &str = "\
Examples:
  source <(belayer completions bash)
  belayer completions zsh > \"${fpath[1]}/_belayer\"
  belayer completions fish > ~/.config/fish/completions/belayer.fish

Exit codes:
  0  done
  1  an error
  2  wrong usage";

/// Arguments of `belayer completions`.
#[derive(Debug, Clone, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `belayer man`.
#[derive(Debug, Clone, Args)]
pub struct ManArguments {
    /// Write a page for each command here. Default: the first page, to the output
    #[arg(long, value_name = "DIRECTORY")]
    pub dir: Option<PathBuf>,
}

/// The command line with the name it was called by: installed as `kubectl-belayer` it is a plugin, and its
/// usage and examples print `kubectl belayer`.
pub fn command(command: Command, called: Option<&Path>) -> Command {
    let is_plugin = called
        .and_then(Path::file_stem)
        .is_some_and(|name| name == PLUGIN);
    if is_plugin {
        as_plugin(command.bin_name("kubectl belayer"))
    } else {
        command
    }
}

/// Rewrites the examples so that they can be copied.
fn as_plugin(command: Command) -> Command {
    let examples = command.get_after_help().map(|help| {
        let lines = help.to_string();
        let lines: Vec<String> = lines
            .lines()
            .map(|line| match line.strip_prefix("  belayer ") {
                Some(rest) => format!("  kubectl belayer {rest}"),
                None => line.to_owned(),
            })
            .collect();
        lines.join("\n")
    });
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(as_plugin)
}

/// Prints the completion script of a shell.
///
/// # Errors
///
/// If it cannot be printed.
pub fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "belayer", &mut script);
    print_data(&script)
}

/// Prints the first manual page, or writes all of them into a directory.
///
/// # Errors
///
/// If the directory or standard output cannot be written to.
pub fn man(arguments: &ManArguments, command: Command) -> Result<(), Failure> {
    let Some(dir) = &arguments.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(anyhow::Error::from)?;
        return print_data(&page);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command, dir))
        .with_context(|| format!("write manual pages to {}", dir.display()))?;
    Ok(())
}
