//! Every public item of a published crate has an example, or a link to an item that has one.
//!
//! Reads the sources with `syn` and follows `pub mod` and `pub use` from the root of each library, so only what other
//! crates can name is checked. Methods, fields and variants belong to their type: an example of a method is one of
//! its type.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, UseTree, Visibility};

use super::root;

/// Programs: their libraries are for their own tests.
const PROGRAMS: [&str; 1] = ["belayer"];

type Modules = BTreeMap<Vec<String>, Module>;
/// The path of a module, and the name of an item in it; without a name, the module itself.
type Place = (Vec<String>, Option<String>);

#[derive(Default)]
struct Module {
    public: bool,
    docs: String,
    items: BTreeMap<String, Named>,
    /// `pub use`: the path, and the name that it gets; a glob has none.
    exports: Vec<(Vec<String>, Option<String>)>,
}

#[derive(Default)]
struct Named {
    public: bool,
    /// Its documentation is a description in a JSON schema, for readers without Rust.
    schema: bool,
    docs: String,
    /// The documentation of its methods.
    methods: String,
}

impl Named {
    fn has_example(&self) -> bool {
        has_example(&self.docs) || has_example(&self.methods)
    }
}

/// A published crate's modules.
struct Library {
    name: String,
    modules: Modules,
}

fn libraries() -> Vec<Library> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if PROGRAMS.contains(&&*name) || manifest.contains("publish = false") {
            continue;
        }
        let file = folder.join("src/lib.rs");
        let source = fs::read_to_string(&file).unwrap();
        let parsed = syn::parse_file(&source).unwrap();
        let mut modules = Modules::new();
        let root = Module {
            public: true,
            docs: docs(&parsed.attrs, &file),
            ..Module::default()
        };
        modules.insert(Vec::new(), root);
        read(parsed.items, &[], &file, &folder.join("src"), &mut modules);
        all.push(Library { name, modules });
    }
    assert!(all.len() > 12, "{}", all.len());
    all
}

/// Whether the item is part of a JSON schema.
fn is_schema(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.tokens.to_string().contains("JsonSchema"),
        _ => false,
    })
}

/// Adds the items of one module, and its modules. `below` is the folder of the files of its modules.
fn read(items: Vec<Item>, path: &[String], file: &Path, below: &Path, modules: &mut Modules) {
    let mut own = modules.remove(path).unwrap();
    for item in items {
        let (name, visibility, attributes) = match item {
            Item::Mod(item) => {
                if !is_test(&item.attrs) {
                    read_module(item, path, (file, below), modules);
                }
                continue;
            }
            Item::Use(item) if matches!(item.vis, Visibility::Public(_)) => {
                exports(&item.tree, &[], &mut own.exports);
                continue;
            }
            Item::Impl(item) if item.trait_.is_none() => {
                if let syn::Type::Path(of) = &*item.self_ty {
                    let name = of.path.segments.last().unwrap().ident.to_string();
                    let named = own.items.entry(name).or_default();
                    for method in &item.items {
                        if let ImplItem::Fn(method) = method {
                            named.methods.push_str(&docs(&method.attrs, file));
                        }
                    }
                }
                continue;
            }
            Item::Macro(item) => {
                let exported = item.attrs.iter().any(|a| a.path().is_ident("macro_export"));
                if let (Some(name), true) = (item.ident, exported) {
                    // Macros are at the root, wherever they are written.
                    let named = Named {
                        public: true,
                        docs: docs(&item.attrs, file),
                        ..Named::default()
                    };
                    let root = match path {
                        [] => &mut own,
                        _ => modules.get_mut(&[][..]).unwrap_or(&mut own),
                    };
                    root.items.insert(name.to_string(), named);
                }
                continue;
            }
            Item::Struct(item) => (item.ident, item.vis, item.attrs),
            Item::Enum(item) => (item.ident, item.vis, item.attrs),
            Item::Trait(mut item) => {
                // Examples of its methods are examples of it.
                for method in &item.items {
                    if let syn::TraitItem::Fn(method) = method {
                        item.attrs.extend(method.attrs.clone());
                    }
                }
                (item.ident, item.vis, item.attrs)
            }
            Item::Type(item) => (item.ident, item.vis, item.attrs),
            Item::Fn(item) => (item.sig.ident, item.vis, item.attrs),
            _ => continue,
        };
        if !is_test(&attributes) {
            let named = own.items.entry(name.to_string()).or_default();
            named.public = matches!(visibility, Visibility::Public(_));
            named.schema = is_schema(&attributes);
            named.docs = docs(&attributes, file);
        }
    }
    modules.insert(path.to_vec(), own);
}

fn read_module(
    item: syn::ItemMod,
    parent: &[String],
    (file, below): (&Path, &Path),
    modules: &mut Modules,
) {
    let name = item.ident.to_string();
    let mut module = Module {
        public: matches!(item.vis, Visibility::Public(_)),
        docs: docs(&item.attrs, file),
        ..Module::default()
    };
    let mut path = parent.to_vec();
    path.push(name.clone());
    let folder = below.join(&name);
    let (items, file) = match item.content {
        Some((_, items)) => (items, file.to_owned()),
        None => {
            let file = [below.join(format!("{name}.rs")), folder.join("mod.rs")];
            let file = file.into_iter().find(|file| file.exists()).unwrap();
            let parsed = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
            module.docs.push_str(&docs(&parsed.attrs, &file));
            (parsed.items, file)
        }
    };
    modules.insert(path.clone(), module);
    read(items, &path, &file, &folder, modules);
}

fn exports(tree: &UseTree, before: &[String], found: &mut Vec<(Vec<String>, Option<String>)>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => exports(&path.tree, &with(&path.ident), found),
        UseTree::Name(name) => found.push((with(&name.ident), Some(name.ident.to_string()))),
        UseTree::Rename(name) => found.push((with(&name.ident), Some(name.rename.to_string()))),
        UseTree::Glob(_) => found.push((before.to_vec(), None)),
        UseTree::Group(group) => {
            for tree in &group.items {
                exports(tree, before, found);
            }
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        Meta::List(list) if list.path.is_ident("doc") => list.tokens.to_string() == "hidden",
        _ => false,
    })
}

/// The text of documentation, one line after the other; included files are read.
fn docs(attributes: &[Attribute], file: &Path) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        if !pair.path.is_ident("doc") {
            continue;
        }
        match &pair.value {
            Expr::Lit(literal) => {
                if let Lit::Str(line) = &literal.lit {
                    text.push_str(&line.value());
                }
            }
            Expr::Macro(included) => {
                let name = included.mac.parse_body::<syn::LitStr>().unwrap().value();
                let page: PathBuf = file.parent().unwrap().join(name);
                text.push_str(&fs::read_to_string(page).unwrap());
            }
            _ => {}
        }
        text.push('\n');
    }
    text
}

/// A code block that is compiled, or a link to a program in a folder `examples` or `e2e/external`.
fn has_example(docs: &str) -> bool {
    let mut fences = docs
        .lines()
        .filter_map(|line| line.trim().strip_prefix("```"));
    let compiled = |fence: &str| matches!(fence, "" | "rust" | "no_run" | "compile_fail");
    // Every second one is the end of a block.
    let mut opens = std::iter::from_fn(|| {
        let opening = fences.next()?;
        fences.next();
        Some(opening)
    });
    opens.any(compiled)
        || ["/examples/", "/e2e/external/"]
            .iter()
            .any(|of| docs.contains(of))
}

/// The paths of the links to items: of [`a::B`] and [text](a::B).
fn links(docs: &str) -> Vec<Vec<String>> {
    let ends = |text: &str, end: char| text.split_once(end).map(|(target, _)| target.to_owned());
    let short = docs.match_indices("[`").filter_map(|(at, _)| {
        let (_, rest) = docs[at + 2..].split_once("`]")?;
        let target = ends(&docs[at + 2..], '`')?;
        (!rest.starts_with('(')).then_some(target)
    });
    let long = docs
        .match_indices("](")
        .filter_map(|(at, _)| ends(&docs[at + 2..], ')'));
    let all = short.chain(long);
    let all = all.filter(|target| !target.contains(['/', '#', ' ']));
    let segment = |text: &str| text.trim_end_matches(['(', ')', '!']).to_owned();
    all.map(|target| target.split("::").map(segment).collect())
        .collect()
}

impl Library {
    /// All that other crates can name.
    fn reachable(&self) -> BTreeSet<Place> {
        let mut found = BTreeSet::new();
        self.publish(&[], &mut found);
        found
    }

    fn publish(&self, path: &[String], found: &mut BTreeSet<Place>) {
        if !found.insert((path.to_vec(), None)) {
            return;
        }
        let module = &self.modules[path];
        for (name, item) in &module.items {
            if item.public {
                found.insert((path.to_vec(), Some(name.clone())));
            }
        }
        for (child, module) in &self.modules {
            if module.public && child.split_last().is_some_and(|(_, parent)| parent == path) {
                self.publish(child, found);
            }
        }
        for (target, name) in &module.exports {
            match self.resolve(path, target) {
                Some((target, None)) if name.is_none() => {
                    let mut all = BTreeSet::new();
                    self.publish(&target, &mut all);
                    all.remove(&(target, None));
                    found.extend(all);
                }
                Some((target, None)) => self.publish(&target, found),
                Some(item) => {
                    found.insert(item);
                }
                None => {}
            }
        }
    }

    /// The item or module of a path; `None` if it is another crate's.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Place> {
        let mut at = from.to_vec();
        let mut rest = path;
        while let [first, others @ ..] = rest {
            match &**first {
                "self" => {}
                "super" => drop(at.pop()),
                "crate" => at.clear(),
                _ => break,
            }
            rest = others;
        }
        while let [name, others @ ..] = rest {
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                at = child;
                rest = others;
                continue;
            }
            let module = &self.modules[&at];
            if module.items.contains_key(name) {
                return Some((at, Some(name.clone())));
            }
            let named = module.exports.iter().find_map(|(target, export)| {
                (export.as_ref() == Some(name)).then(|| self.resolve(&at, target))?
            });
            let globs = || {
                module.exports.iter().find_map(|(target, export)| {
                    let (target, _) = export.is_none().then(|| self.resolve(&at, target))??;
                    self.resolve(&target, rest)
                })
            };
            return named.or_else(globs);
        }
        Some((at, None))
    }

    fn docs(&self, (path, name): &Place) -> (String, bool) {
        let module = &self.modules[path];
        match name {
            None => (module.docs.clone(), has_example(&module.docs)),
            Some(name) => {
                let item = &module.items[name];
                (item.docs.clone(), item.has_example())
            }
        }
    }
}

/// The names of items with an example: of a crate, or of all of them.
fn names_with_example(library: &Library, reachable: &BTreeSet<Place>) -> BTreeSet<String> {
    let with = reachable.iter().filter(|place| library.docs(place).1);
    let named = with.map(|(path, name)| match (name, path.last()) {
        (Some(name), _) | (None, Some(name)) => name.clone(),
        (None, None) => format!("belayer_{}", library.name.replace('-', "_")),
    });
    named.collect()
}

/// Row *proof*: whoever opens the documentation of an item finds an example, or a link to an item with one. The types of
/// JSON schemas are left out.
#[test]
fn crates_every_public_item_has_an_example_or_a_link_to_one() {
    let libraries = libraries();
    let reachable: Vec<_> = libraries.iter().map(Library::reachable).collect();
    let all = libraries.iter().zip(&reachable);
    let known: BTreeSet<String> = all
        .clone()
        .flat_map(|(library, reachable)| names_with_example(library, reachable))
        .collect();
    let mut without = Vec::new();
    for (library, reachable) in all {
        for place in reachable {
            let path = &place.0;
            if let Some(name) = &place.1
                && library.modules[path].items[name].schema
            {
                continue;
            }
            let (docs, has) = library.docs(place);
            let shows = |link: &Vec<String>| {
                let module = match (&*link[0], path.split_last()) {
                    ("crate", _) if link.len() == 1 => Some(Vec::new()),
                    ("self", _) => Some(path.clone()),
                    ("super", Some((_, parent))) => Some(parent.to_vec()),
                    _ => None,
                };
                let module = module.is_some_and(|module| library.docs(&(module, None)).1);
                module || link.iter().any(|segment| known.contains(segment))
            };
            if !has && !links(&docs).iter().any(shows) {
                let name = place.0.iter().chain(&place.1).cloned().collect::<Vec<_>>();
                without.push(format!("{}::{}", library.name, name.join("::")));
            }
        }
    }
    assert!(
        without.is_empty(),
        "{} public items have neither an example nor a link to an item with one:\n{}",
        without.len(),
        without.join("\n")
    );
}
