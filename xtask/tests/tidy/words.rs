//! Words of pages, manifests and messages: claims that were wrong, and phrases that only this project would understand.

use std::collections::BTreeSet;
use std::fs;

use proc_macro2::{TokenStream, TokenTree};

use super::documents::{in_repository, pages};
use super::{root, visit, without_tests};

/// Claims that were on a page and are not true.
const WRONG: &[&str] = &[
    "age is none",
    "every setting is a key",
    "kubectl cannot tell",
    "left hanging",
    "never on age",
    "not its own",
    "nothing to install",
    "runs as nobody",
    "typed in by hand",
    "role `view` is enough",
    "permission to view is enough",
    "each example is one screen",
];

/// Phrases of a dialect of its own. The text uses the field's words instead: the hold (the finalizer) is added,
/// denied requests are reported in Events, the leader, the backlog limit.
const DIALECT: &[&str] = &[
    "are told",
    "asks for a token",
    "backlog gate",
    "be told to",
    "belongs into",
    "foreign finalizer",
    "foreign finalizers",
    "given back",
    "gives the lease back",
    "if that are more",
    "look again",
    "looks again",
    "nobody",
    "not told",
    "of ours",
    "on first sight",
    "refuses a claim",
    "refuses a pod",
    "refuses a workflow",
    "somebody",
    "tells why",
    "the view role is enough",
    "ties it",
    "ties the hold",
    "to be let go",
    "uses a claim",
    "who leads",
];

/// The words of a text, also across the ends of lines and the signs of comments.
fn words(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let words: Vec<String> = text
        .split(|c: char| !is_word(c))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    format!(" {} ", words.join(" "))
}

fn dialect(text: &str) -> Vec<&'static str> {
    let words = words(text);
    let is_in = |phrase: &&&str| words.contains(&format!(" {phrase} "));
    DIALECT.iter().filter(is_in).copied().collect()
}

/// Pages that call a kubelet real: its scenarios run containers.
const REAL_KUBELETS: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "e2e/README.md",
    "e2e/fixtures/argo/README.md",
];

#[test]
fn no_page_makes_a_claim_that_was_wrong() {
    for page in pages() {
        let name = in_repository(&page);
        let text = fs::read_to_string(&page).unwrap().to_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for claim in WRONG {
            assert!(!text.contains(claim), "{name}: {claim}");
        }
        let is_real = REAL_KUBELETS.contains(&&*name);
        assert!(is_real || !text.contains("real kubelet"), "{name}");
        // Age releases a pod only by this key.
        for claim in ["never by age", "age is no", "age is not"] {
            for (at, _) in text.match_indices(claim) {
                let next: String = text[at..].chars().take(200).collect();
                assert!(next.contains("releaseafter"), "{name}: {next}");
            }
        }
    }
}

/// "A Lease of its own" is "a separate Lease". Only before a noun is it plain ("of its own node").
fn separate(text: &str) -> Vec<&str> {
    let plain = |rest: &str| {
        rest.trim_start_matches(' ')
            .starts_with(char::is_alphabetic)
    };
    ["of its own", "of their own"]
        .into_iter()
        .filter(|phrase| {
            text.match_indices(phrase)
                .any(|(at, _)| !plain(&text[at + phrase.len()..]))
        })
        .collect()
}

#[test]
fn pages_and_manifests_call_separate_what_is_separate() {
    let mut files = pages();
    for ending in ["yaml", "tpl", "txt"] {
        visit(&root().join("deploy"), ending, &mut |file| {
            files.push(file.to_owned());
        });
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().map(|line| line.trim().trim_start_matches('#'));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let name = in_repository(&file);
        assert_eq!(separate(&words.join(" ")), [""; 0], "{name}");
    }
    assert_eq!(separate("a Lease of its own. It"), ["of its own"]);
    assert!(separate("the reports of its own node, of their owners").is_empty());
}

/// The demo takes half a minute only once it is compiled.
#[test]
fn the_time_of_the_demo_is_without_clone_and_build() {
    let mut seen = 0;
    for page in ["README.md", "docs/src/start/demo.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for (at, _) in text.match_indices("half a minute") {
            let from = text[..at].char_indices().rev().nth(120);
            let before = &text[from.map_or(0, |(index, _)| index)..at];
            let after: String = text[at..].chars().take(60).collect();
            let names = before.contains("compiles") || after.contains("after the first build");
            assert!(names, "{page}: {before}{after}");
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen}");
}

/// The help of every command is a page too.
#[test]
fn pages_manifests_and_help_are_in_plain_words() {
    let mut files = pages();
    for ending in ["yaml", "tpl", "txt", "json"] {
        visit(&root().join("deploy"), ending, &mut |file| {
            files.push(file.to_owned());
        });
    }
    files.push(root().join("docs/book.toml"));
    assert!(files.len() > 100, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        for phrase in dialect(&fs::read_to_string(&file).unwrap()) {
            found.push(format!("{}: {phrase}", in_repository(&file)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The phrases in the messages and comments of a source file. In code the words of a phrase have signs between them.
fn dialect_of_source(source: &str) -> Vec<&'static str> {
    let mut text = String::from(" ");
    for line in without_tests(source).lines() {
        let line = line.trim().trim_start_matches('/').trim_start_matches('!');
        let line = line.trim_end_matches('\\');
        for word in line.split_whitespace() {
            text.push_str(word.trim_matches(|c: char| !c.is_alphanumeric()));
            text.push(' ');
        }
    }
    let text = text.to_lowercase();
    let is_in = |phrase: &&&str| text.contains(&format!(" {phrase} "));
    DIALECT.iter().filter(is_in).copied().collect()
}

/// Logs, Events, the texts of `explain` and the comments.
#[test]
fn messages_and_comments_are_in_plain_words() {
    let (mut files, mut found) = (0, Vec::new());
    for folder in ["crates", "e2e", "xtask/src"] {
        visit(&root().join(folder), "rs", &mut |file| {
            let name = in_repository(file);
            let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
            if is_test || name.contains("/target/") {
                return;
            }
            files += 1;
            for phrase in dialect_of_source(&fs::read_to_string(file).unwrap()) {
                found.push(format!("{name}: {phrase}"));
            }
        });
    }
    assert!(files > 500, "{files}");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_phrase_of_the_dialect_is_found_in_a_message() {
    let message = "log(\n    \"no hold: the backlog \\\n     gate is closed\",\n);";
    assert_eq!(dialect_of_source(message), ["backlog gate"]);
    assert_eq!(
        dialect_of_source("/// Removed on\n/// first sight."),
        ["on first sight"]
    );
    let code = "let foreign = |finalizer: &&str| true;\n#[cfg(test)]\nmod tests {\n// nobody";
    assert!(dialect_of_source(code).is_empty());
}

/// Words that names in the code do not have, as the field has its own words for them: held objects, periodic task, query, live
/// read, leadership, priority, PVC.
const NO_NAMES: &[&str] = &[
    "bed",
    "census",
    "claim",
    "claims",
    "companions",
    "contender",
    "crew",
    "desk",
    "fact",
    "facts",
    "ledger",
    "oracle",
    "ours",
    "rehearsal",
    "rope",
    "sight",
    "steward",
    "tenure",
    "tied",
    "ties",
];

/// Names that Kubernetes chose, its messages in tests, and names that users know by now.
const CHOSEN_BY_OTHERS: &[&str] = &[
    "ClaimInUse",
    "ClaimMessage",
    "ClaimSource",
    "JsonClaim",
    "NOT_OURS",
    "claim_name",
    "claim_ref",
    "persistent_volume_claim",
];

fn name_the_words(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => name_the_words(group.stream(), found),
            TokenTree::Ident(name) => {
                let name = name.to_string();
                if !CHOSEN_BY_OTHERS.contains(&&*name) && has_such_word(&name) {
                    found.insert(name);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Whether a word of a name in snake or camel case is one that is not used.
fn has_such_word(name: &str) -> bool {
    let mut words = String::new();
    let mut before = '_';
    for c in name.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            words.push('_');
        }
        words.extend(c.to_lowercase());
        before = c;
    }
    words.split('_').any(|word| NO_NAMES.contains(&word))
}

#[test]
fn names_in_the_code_are_the_words_of_the_field() {
    let (mut files, mut found) = (0, BTreeSet::new());
    for folder in ["crates", "e2e", "xtask/src"] {
        visit(&root().join(folder), "rs", &mut |file| {
            let name = in_repository(file);
            if name.contains("/tests") || name.contains("/target/") {
                return;
            }
            files += 1;
            let code = fs::read_to_string(file).unwrap();
            let mut names = BTreeSet::new();
            name_the_words(code.parse().unwrap(), &mut names);
            found.extend(names.iter().map(|word| format!("{name}: {word}")));
        });
    }
    assert!(files > 500, "{files}");
    assert!(found.is_empty(), "{found:#?}");
    assert!(has_such_word("ownerFacts") && has_such_word("CENSUS") && !has_such_word("artifacts"));
}

#[test]
fn a_phrase_of_the_dialect_is_found() {
    for (text, phrase) in [
        (
            "# Belayer ties\n# the hold at the claim's creation",
            "ties the hold",
        ),
        ("\"title\": \"Not told, not read\"", "not told"),
        (
            "until it is safe, and tells why\nanything is stuck",
            "tells why",
        ),
        ("Nobody is granted more of them", "nobody"),
        (
            "The `view` role is enough; kinds",
            "the view role is enough",
        ),
    ] {
        assert_eq!(dialect(text), [phrase], "{text}");
    }
    assert!(dialect("the alert `BelayerNobodyLeads`").is_empty());
}
