//! Suggestions for misspelt names.

/// The known name that is nearest to the given one, if it is near enough.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
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

/// `did you mean X?`, or the list of known names.
pub fn suggestion(given: &str, known: &[&str]) -> String {
    match nearest(given, known.iter().copied()) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("use one of {}", known.join(", ")),
    }
}
