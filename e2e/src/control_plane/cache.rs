//! The cache folder for expensive builds: outside the repository, so that a new clone uses it.

use std::path::PathBuf;

/// Belayer's cache folder: `$BELAYER_CACHE`, else `$XDG_CACHE_HOME/belayer`, else `~/.cache/belayer`.
///
/// Falls back to the system's temporary folder if there is no home directory.
pub fn cache_dir() -> PathBuf {
    choose(|name| std::env::var_os(name).map(PathBuf::from))
}

fn choose(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let set = |name| variable(name).filter(|path| path.is_absolute());
    if let Some(own) = set("BELAYER_CACHE") {
        return own;
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("belayer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::our_own_variable_wins(&[("BELAYER_CACHE", "/b"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/b")]
    #[case::then_the_desktop_standard(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/belayer")]
    #[case::then_the_home(&[("HOME", "/h")], "/h/.cache/belayer")]
    #[case::a_relative_path_is_not_taken(&[("BELAYER_CACHE", "b"), ("HOME", "/h")], "/h/.cache/belayer")]
    fn the_cache_is_found(#[case] variables: &[(&str, &str)], #[case] expected: &str) {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| PathBuf::from(value))
        };
        assert_eq!(choose(lookup), PathBuf::from(expected));
    }
}
