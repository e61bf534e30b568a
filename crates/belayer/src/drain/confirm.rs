//! Asks for confirmation on a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::{DrainArguments, decided_by_default};
use crate::message::message;
use crate::reach::Server;

/// Whether the user confirms the drain. Nothing is asked without a terminal, with `--yes`, or if nothing is removed.
pub(super) fn is_confirmed(arguments: &DrainArguments, server: &Server) -> io::Result<bool> {
    let (stdin, mut stderr) = (io::stdin(), io::stderr());
    let removes = !(arguments.dry_run || arguments.resume);
    if arguments.yes || !removes || !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(true);
    }
    let what = if arguments.unselected {
        "from all objects that no profile or rule selects any more"
    } else {
        "from all objects; until `belayer drain --resume` it adds none"
    };
    let server = server.address();
    let decided_by = match decided_by_default(arguments) {
        Some(note) => format!(" {note}."),
        None => String::new(),
    };
    let text = message(&format!(
        "Removes Belayer's finalizers in the cluster at {server} {what}.{decided_by}"
    ));
    write!(stderr, "{text}\nContinue? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("y\n", true)]
    #[case("Yes\n", true)]
    #[case("\n", false)]
    #[case("", false)]
    #[case("yes please\n", false)]
    fn only_yes_confirms(#[case] answer: &str, #[case] confirmed: bool) {
        assert_eq!(is_yes(answer), confirmed);
    }
}
