//! The page of known finalizers, made of their data file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

const BEGIN: &str = "<!-- known finalizers: made of finalizers.yaml -->\n";
const END: &str = "<!-- end of known finalizers -->\n";

fn table(entries: &Value) -> String {
    let mut table = String::from(
        "| finalizer | controller | what it guards | what is lost if it is removed by force |\n| --- | --- | --- | --- |\n",
    );
    for entry in entries.as_array().unwrap() {
        let text = |key: &str| {
            let text = entry[key]
                .as_str()
                .unwrap_or_else(|| panic!("{key}: {entry}"));
            text.replace('|', "\\|").replace('<', "\\<")
        };
        let _ = writeln!(
            table,
            "| `{}` | [{}]({}) | {} | {} |",
            text("finalizer"),
            text("owner"),
            text("source"),
            text("guards"),
            text("lost"),
        );
    }
    table
}

/// `UPDATE_SNAPSHOTS=1` writes it again.
#[test]
fn the_page_of_known_finalizers_matches_the_data() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = fs::read_to_string(root.join("crates/inspect/src/known_finalizers/finalizers.yaml"));
    let entries: Value = serde_saphyr::from_str(&data.unwrap()).unwrap();
    let path = root.join("docs/src/reference/known-finalizers.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let wanted = format!("{head}{BEGIN}{}{END}{tail}", table(&entries));
    if page != wanted && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(path, wanted).unwrap();
        return;
    }
    assert!(page == wanted, "known-finalizers.md is not up to date");
}
