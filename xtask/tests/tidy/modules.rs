//! No import cycle between sibling modules.
//!
//! Reads `use` declarations and paths that begin with `crate`, `self` or `super`, and follows re-exports
//! (`pub use child::Name`). A reference between two modules counts for the two siblings below their nearest
//! common parent; a parent and its child may refer to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{root, visit, without_tests};

type Module = Vec<String>;

/// Every package's modules with their sources, without tests.
fn packages() -> BTreeMap<String, BTreeMap<Module, String>> {
    let mut packages: BTreeMap<String, BTreeMap<Module, String>> = BTreeMap::new();
    for folder in ["crates", "e2e", "xtask"] {
        visit(&root().join(folder), "rs", &mut |file| {
            let relative = file.strip_prefix(root()).unwrap().with_extension("");
            let parts: Vec<String> = relative
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            let Some(src) = parts.iter().position(|part| part == "src") else {
                return;
            };
            let mut module = parts[src + 1..].to_vec();
            if matches!(&*module[module.len() - 1], "lib" | "main" | "mod") {
                module.pop();
            }
            if module.iter().any(|part| part == "tests") {
                return;
            }
            let package = parts[..src].join("/");
            let source = code(file);
            let modules = packages.entry(package).or_default();
            // A library and a program of one package are one tree here.
            modules.entry(module).or_default().push_str(&source);
        });
    }
    packages
}

/// The text of a file without comments and without the tests at its end.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let lines = without_tests(&text)
        .lines()
        .map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// The declarations that begin with `use`, and the text without them.
fn uses(source: &str) -> (Vec<(bool, String)>, String) {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut text = source;
    while let Some(at) = text.find("use ") {
        let (before, after) = text.split_at(at);
        let line = before.rsplit('\n').next().unwrap().trim();
        let is_use =
            line.is_empty() || (line.starts_with("pub") && !line.contains(['"', ';', '{']));
        let Some(end) = after.find(';').filter(|_| is_use) else {
            rest.push_str(before);
            rest.push_str("use ");
            text = &after[4..];
            continue;
        };
        rest.push_str(before);
        found.push((line.starts_with("pub"), after[4..end].to_owned()));
        text = &after[end + 1..];
    }
    rest.push_str(text);
    (found, rest)
}

/// `a::{b, c::{d as e}}` as the paths `a::b` and `a::c::d`.
fn paths(tree: &str, prefix: &[String], found: &mut Vec<Module>) {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    let names = |path: &str| -> Vec<String> {
        let plain = path.split(" as ").next().unwrap();
        let names = plain.split("::").map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    for part in parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match part.split_once('{') {
            Some((head, inner)) => {
                let inner = inner.strip_suffix('}').unwrap_or(inner);
                let prefix = [prefix, &names(head)].concat();
                paths(inner, &prefix, found);
            }
            None => found.push([prefix, &names(part)].concat()),
        }
    }
}

/// Paths in code that begin with `crate::` or `super::`.
fn inline_paths(text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| word(c) || c == ':' || c == '$') {
                continue;
            }
            let path: String = text[at..]
                .chars()
                .take_while(|c| word(*c) || *c == ':')
                .collect();
            found.push(
                path.split("::")
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect(),
            );
        }
    }
    found
}

/// The module that a path in `module` leads to.
fn resolve(
    path: &[String],
    module: &Module,
    modules: &BTreeMap<Module, String>,
    exports: &BTreeMap<(Module, String), Module>,
) -> Option<Module> {
    let mut at: Module = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.clone(),
        _ => return None,
    };
    for name in path.iter().skip(usize::from(path[0] != "super")) {
        if name == "super" {
            at.pop();
            continue;
        }
        let child = [at.as_slice(), std::slice::from_ref(name)].concat();
        if modules.contains_key(&child) {
            at = child;
        } else {
            return Some(
                exports
                    .get(&(at.clone(), name.clone()))
                    .cloned()
                    .unwrap_or(at),
            );
        }
    }
    Some(at)
}

/// Which siblings refer to which, by their parent.
fn references(
    modules: &BTreeMap<Module, String>,
) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
    let mut exports = BTreeMap::new();
    let mut all = Vec::new();
    for (module, source) in modules {
        let (uses, rest) = uses(source);
        let mut found = inline_paths(&rest);
        for (is_public, tree) in uses {
            let mut these = Vec::new();
            paths(&tree, &[], &mut these);
            for path in these.iter().filter(|_| is_public) {
                let path = path.strip_prefix(&["self".to_owned()]).unwrap_or(path);
                let [child, .., name] = path else { continue };
                let child = [module.as_slice(), std::slice::from_ref(child)].concat();
                if modules.contains_key(&child) {
                    exports.insert((module.clone(), name.clone()), child);
                }
            }
            found.append(&mut these);
        }
        all.push((module, found));
    }
    let mut siblings: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, found) in all {
        for path in found {
            let Some(to) = resolve(&path, module, modules, &exports) else {
                continue;
            };
            let common = module.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(common), to.get(common)) {
                let parent = siblings.entry(module[..common].to_vec()).or_default();
                parent.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    siblings
}

fn reached<'a>(from: &'a str, edges: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for next in edges.get(at).into_iter().flatten() {
            if seen.insert(&**next) {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn sibling_modules_have_no_import_cycle() {
    let packages = packages();
    assert!(packages.len() > 15, "only {:?}", packages.keys());
    let mut cycles = Vec::new();
    let mut edges = 0;
    for (package, modules) in &packages {
        for (parent, siblings) in references(modules) {
            edges += siblings.values().map(BTreeSet::len).sum::<usize>();
            let parent = parent.join("::");
            for from in siblings.keys() {
                let later = reached(from, &siblings);
                let back: Vec<_> = later
                    .iter()
                    .filter(|to| **to >= from.as_str() && reached(to, &siblings).contains(&**from))
                    .collect();
                if later.contains(&**from) && back[0] == from {
                    cycles.push(format!("{package} {parent}: {back:?}"));
                }
            }
        }
    }
    assert!(edges > 300, "only {edges} references were found");
    assert!(cycles.is_empty(), "cycles:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_through_a_re_export_is_found() {
    let module = |path: &str| {
        path.split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect::<Module>()
    };
    let sources = [
        ("", "pub use a::Thing;"),
        ("a", "use crate::b::{self, Other};"),
        ("b", "pub struct Other(crate::Thing);"),
        ("b::c", "use super::Other;"),
    ];
    let modules = sources
        .map(|(path, text)| (module(path), text.to_owned()))
        .into();
    let found = references(&modules);
    let top = &found[&Module::new()];
    assert!(reached("a", top).contains("a"), "{found:?}");
    // A child may refer to its parent.
    assert!(!found.contains_key(&module("b")));
}
