//! Suggestions for misspelt names.
//!
//! ```
//! use belayer_controller::config::suggest::suggestion;
//!
//! assert_eq!(suggestion("profile", &["profiles", "mode"]), "did you mean `profiles`?");
//! ```

/// The known name that is nearest to the given one, if it is near enough.
/// [`suggestion`](crate::config::suggest::suggestion) makes a sentence of it.
pub(crate) fn nearest<'k>(
    given: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let given = given.to_lowercase();
    known
        .into_iter()
        .map(|known| {
            let distance = strsim::damerau_levenshtein(&given, &known.to_lowercase());
            (distance, known)
        })
        .filter(|(distance, known)| *distance <= known.len().max(given.len()) / 3 + 1)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// `did you mean X?`, or the list of known names. The [module's example](self) has a mistyped key.
pub fn suggestion(given: &str, known: &[&str]) -> String {
    match nearest(given, known.iter().copied()) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("use one of {}", known.join(", ")),
    }
}
