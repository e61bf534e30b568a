//! Codes of requirements, such as `T3`: the page `docs/src/contribute/requirements.md` defines each that is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::documents::{BOOK, in_repository, pages};
use super::{root, visit};

const PAGE: &str = "contribute/requirements.md";

/// A letter and one or two digits.
fn is_code(word: &str) -> bool {
    let mut letters = word.chars();
    let is_letter = letters
        .next()
        .is_some_and(|letter| letter.is_ascii_uppercase());
    let digits = letters.as_str();
    is_letter && (1..=2).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_digit())
}

/// The codes in running text. `ingress-V2` is a name and not a code.
fn in_text(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')))
        .filter(|word| is_code(word))
}

/// The codes with which the name of a function begins: T3 and A10 in `t3_a10_limited`. A name is more than a code.
fn in_name(name: &str) -> impl Iterator<Item = String> {
    let (words, _) = name.rsplit_once('_').unwrap_or_default();
    let lower = words
        .split('_')
        .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    lower
        .map(str::to_ascii_uppercase)
        .take_while(|word| is_code(word))
}

/// The codes in the names of functions and in the comments of a source file, and the requirements that comments cite by
/// name: "Row *site*".
fn in_source(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in source.lines() {
        if let Some((_, comment)) = line.split_once("//") {
            found.extend(in_text(comment).map(str::to_owned));
            let cited = comment
                .split_once("ow *")
                .and_then(|(_, rest)| rest.split_once('*'));
            found.extend(cited.map(|(name, _)| name.to_owned()));
        } else if let Some((_, name)) = line.split_once("fn ") {
            found.extend(in_name(name.split('(').next().unwrap_or_default()));
        }
    }
    found
}

/// The codes that tests show: in the names of test functions, and in the names and descriptions of scenarios. A helper or a
/// comment shows nothing: it stays when its test goes.
fn shown(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= matches!(path.rsplit("::").next(), Some("test" | "rstest"));
        } else if let Some((_, name)) = line.split_once("fn ").filter(|_| !line.starts_with("//")) {
            if is_test {
                found.extend(in_name(name.split('(').next().unwrap_or_default()));
            }
            is_test = false;
        }
    }
    for call in ["Scenario::shared(", "Scenario::alone(", " scenario("] {
        for arguments in source.split(call).skip(1) {
            let mut literals = arguments.split('"').skip(1).step_by(2);
            let name = literals.next().unwrap_or_default().replace('-', "_");
            found.extend(in_name(&name));
            found.extend(in_text(literals.next().unwrap_or_default()).map(str::to_owned));
        }
    }
    found
}

/// The name and the text of each source file except this one.
fn sources(with: &mut dyn FnMut(String, &str)) {
    for folder in ["crates", "e2e", "xtask"] {
        visit(&root().join(folder), "rs", &mut |file| {
            let name = in_repository(file);
            if !name.contains("/target/") && !name.ends_with("tidy/requirements.rs") {
                with(name, &fs::read_to_string(file).unwrap());
            }
        });
    }
}

/// The first column of the page's tables.
fn defined() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join(BOOK).join(PAGE)).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    // The head of a table, its line below, and the letters of the groups.
    rows.filter(|cell| cell.len() > 1 && !["letter", "code", "name", "---"].contains(cell))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_code_of_a_requirement_is_defined_on_its_page() {
    let mut used: BTreeMap<String, String> = BTreeMap::new();
    sources(&mut |name, source| {
        let codes = in_source(source).into_iter();
        used.extend(codes.map(|code| (code, name.clone())));
    });
    for page in pages().iter().filter(|page| !page.ends_with(PAGE)) {
        let text = fs::read_to_string(page).unwrap();
        let name = in_repository(page);
        used.extend(in_text(&text).map(|code| (code.to_owned(), name.clone())));
    }
    let defined = defined();
    let missing: BTreeMap<_, _> = used
        .iter()
        .filter(|(code, _)| !defined.contains(*code))
        .collect();
    assert!(missing.is_empty(), "not on the page {PAGE}: {missing:#?}");
    let unused: Vec<_> = defined
        .iter()
        .filter(|code| !used.contains_key(*code))
        .collect();
    assert!(
        unused.is_empty(),
        "{PAGE} defines what nothing uses: {unused:?}"
    );
    assert!(used.len() > 60, "{used:?}");
}

#[test]
fn every_code_is_shown_by_a_test() {
    let mut tested = BTreeSet::new();
    sources(&mut |_, source| tested.extend(shown(source)));
    let codes = defined().into_iter().filter(|name| is_code(name));
    let missing: Vec<_> = codes.filter(|code| !tested.contains(code)).collect();
    assert!(
        missing.is_empty(),
        "no name of a test, and no name or description of a scenario, has {missing:?}: {PAGE}"
    );
}

#[test]
fn only_tests_and_scenarios_show_a_code() {
    let source = r#"
        #[tokio::test]
        async fn t1_t2_removed() {}
        #[rstest]
        #[case::a(1)]
        fn t3_kept(#[case] a: u8) {}
        fn t4_helper() {}
        #[cfg(test)]
        fn t5_helper() {}
        /// T6
        Scenario::alone(
            "a8-many-workflows",
            "R6, R7: one is wiped (L2)",
            many,
        )
    "#;
    let found: Vec<String> = shown(source).into_iter().collect();
    assert_eq!(found, ["A8", "L2", "R6", "R7", "T1", "T2", "T3"]);
}

#[test]
fn a_code_is_found_in_names_and_comments() {
    let source = "/// Rules R6 and T8: not *this*, nor `ingress-V2`.\nfn t3_a10_kept(t4: u8) {}\n// (row *site*)\nlet a = L1;";
    let found: Vec<String> = in_source(source).into_iter().collect();
    assert_eq!(found, ["A10", "R6", "T3", "T8", "site"]);
    assert!(in_source("fn row_05_is_held() {}\nfn tests_a1() {}\nfn v4() {}").is_empty());
}
