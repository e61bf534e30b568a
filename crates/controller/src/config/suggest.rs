//! What somebody may have meant.

/// The known name that is nearest to what was given, if one is near enough to be meant.
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

/// `did you mean X?`, or all that is known.
pub fn way_out(given: &str, known: &[&str]) -> String {
    match nearest(given, known.iter().copied()) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}
