//! The `belayer` binary; the code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    belayer::main()
}
