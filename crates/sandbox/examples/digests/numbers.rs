//! The digest of the protobuf field numbers of built-in types, for decoding bodies.
//!
//! A field's number and type come from a Go module's `generated.proto`; its JSON name, and whether JSON omits
//! a zero, from the tags of the Go struct.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

/// Packages of protobuf, and their names in the digest of types.
const PACKAGES: &[(&str, &str)] = &[
    ("k8s.io.apiextensions_apiserver.pkg.apis.", ""),
    (
        "k8s.io.kube_aggregator.pkg.apis.",
        "io.k8s.kube-aggregator.pkg.apis.",
    ),
    ("k8s.io.apimachinery.pkg.apis.", ""),
    ("k8s.io.apimachinery.pkg.", ""),
    ("k8s.io.api.", ""),
];
/// Types whose bytes are JSON.
const RAW: &[&str] = &[
    "apiextensions.v1.JSON",
    "meta.v1.FieldsV1",
    "runtime.RawExtension",
];
/// Bodies that are not kinds in the digest of types.
const OTHERS: &[&str] = &["autoscaling.v1.Scale", "meta.v1.DeleteOptions"];

#[derive(Deserialize)]
struct Types {
    kinds: BTreeMap<String, String>,
}

/// A field of the Go struct.
#[derive(Debug, PartialEq, Eq)]
struct Tag {
    name: String,
    inline: bool,
    pointer: bool,
    omitempty: bool,
    omitzero: bool,
}

type Tags = BTreeMap<(String, u32), Tag>;
type Messages = BTreeMap<String, BTreeMap<u32, String>>;

/// Generates the digest from folders of Go modules.
///
/// # Errors
/// When a folder cannot be read, or lacks a type that the sandbox serves.
pub(crate) fn digest(folders: &[PathBuf]) -> Result<String> {
    let mut messages = Messages::new();
    for folder in folders {
        walk(folder, &mut messages)?;
    }
    let types = include_str!("../../src/kinds/types.json");
    let types: Types = serde_json::from_str(types)?;
    let mut wanted: Vec<String> = types.kinds.into_values().collect();
    wanted.extend(OTHERS.iter().map(|name| (*name).to_owned()));
    let mut found = Messages::new();
    while let Some(name) = wanted.pop() {
        if found.contains_key(&name) {
            continue;
        }
        let fields = messages.get(&name);
        let fields = fields.with_context(|| format!("no message {name} in the folders"))?;
        wanted.extend(fields.values().filter_map(|field| inner(field)));
        found.insert(name, fields.clone());
    }
    let lines: Vec<String> = found
        .iter()
        .map(|(name, fields)| line(name, fields))
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

fn line(name: &str, fields: &BTreeMap<u32, String>) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(number, field)| format!("\"{number}\":{}", Value::from(field.as_str())))
        .collect();
    format!(" {}: {{{}}}", Value::from(name), fields.join(","))
}

/// The message in a field such as `ports []core.v1.Port ?`.
fn inner(field: &str) -> Option<String> {
    let word = field.split(' ').find(|word| word.contains('.'))?;
    Some(word.trim_start_matches("[]").to_owned())
}

fn walk(folder: &Path, messages: &mut Messages) -> Result<()> {
    let path = || folder.display().to_string();
    let proto = folder.join("generated.proto");
    if proto.is_file() {
        let tags = tags_of(folder)?;
        messages.extend(read_proto(&fs::read_to_string(&proto)?, &tags).with_context(path)?);
    }
    for entry in fs::read_dir(folder).with_context(path)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, messages)?;
        }
    }
    Ok(())
}

fn tags_of(folder: &Path) -> Result<Tags> {
    let mut tags = Tags::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".go") && !name.ends_with("_test.go") && name != "generated.pb.go" {
            read_go(&fs::read_to_string(&path)?, &mut tags);
        }
    }
    Ok(tags)
}

fn read_go(text: &str, tags: &mut Tags) {
    let mut owner = String::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("type ") {
            owner = rest.split(' ').next().unwrap_or_default().to_owned();
        }
        let Some((field, tag)) = line.split_once('`') else {
            continue;
        };
        let of = |key: &str| {
            let (_, rest) = tag.split_once(&format!("{key}:\""))?;
            rest.split('"').next()
        };
        let number = of("protobuf").and_then(|tag| tag.split(',').nth(1)?.parse().ok());
        let Some(number) = number else { continue };
        let json = of("json").unwrap_or_default();
        let mut options = json.split(',');
        let name = options.next().unwrap_or_default();
        let options: Vec<&str> = options.collect();
        let tag = Tag {
            name: name.to_owned(),
            inline: name.is_empty() && options.contains(&"inline"),
            pointer: field.split_whitespace().any(|word| word.starts_with('*')),
            omitempty: options.contains(&"omitempty"),
            omitzero: options.contains(&"omitzero"),
        };
        tags.insert((owner.clone(), number), tag);
    }
}

fn read_proto(text: &str, tags: &Tags) -> Result<Messages> {
    let mut messages = Messages::new();
    let (mut package, mut message) = (String::new(), String::new());
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("package ") {
            package = short(name.trim_end_matches(';'));
        } else if let Some(name) = line.strip_prefix("message ") {
            message = name.trim_end_matches('{').trim().to_owned();
            messages.insert(format!("{package}.{message}"), BTreeMap::new());
        } else if let Some((left, number)) = line.split_once(" = ")
            && !line.starts_with("//")
            && !message.is_empty()
        {
            let number: u32 = number
                .trim_end_matches(';')
                .parse()
                .context(line.to_owned())?;
            let owner = format!("{package}.{message}");
            let tag = tags.get(&(message.clone(), number));
            let field =
                field(&package, &owner, left, tag).with_context(|| format!("{owner}: {line}"))?;
            messages.entry(owner).or_default().insert(number, field);
        }
    }
    Ok(messages)
}

/// A field in the digest: its name in JSON (`+` if it is inlined), its type, and `?` when JSON
/// omits its zero.
fn field(package: &str, owner: &str, left: &str, tag: Option<&Tag>) -> Result<String> {
    let (declared, name) = left.rsplit_once(' ').context("a field without a type")?;
    let node = if let Some(value) = declared.strip_prefix("map<string, ") {
        format!("map {}", node(package, owner, value.trim_end_matches('>')))
    } else if let Some(item) = declared.strip_prefix("repeated ") {
        format!("[]{}", node(package, owner, item))
    } else {
        let one = declared
            .strip_prefix("optional ")
            .context("an unknown label")?;
        node(package, owner, one)
    };
    let Some(tag) = tag else {
        return Ok(format!("{name} {node}"));
    };
    if tag.inline {
        ensure!(node.contains('.'), "only a message can be inlined");
        return Ok(format!("+ {node}"));
    }
    let name = match tag.name.as_str() {
        "" | "-" => name,
        name => name,
    };
    let omits = tag.omitzero || (tag.omitempty && !node.contains('.'));
    let mark = if omits && !tag.pointer { " ?" } else { "" };
    Ok(format!("{name} {node}{mark}"))
}

fn node(package: &str, owner: &str, declared: &str) -> String {
    match declared {
        "string" => "text".into(),
        "bytes" if RAW.contains(&owner) => "json".into(),
        "bytes" => "bytes".into(),
        "int64" => "int".into(),
        "int32" => "int32".into(),
        "bool" => "bool".into(),
        "double" => "number".into(),
        other => match other.strip_prefix('.') {
            Some(full) => short(full),
            None => format!("{package}.{other}"),
        },
    }
}

fn short(name: &str) -> String {
    let known = PACKAGES
        .iter()
        .find_map(|(from, to)| Some(format!("{to}{}", name.strip_prefix(from)?)));
    known.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO: &str = r#"
type Volume struct {
	// A comment.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	VolumeSource `json:",inline" protobuf:"bytes,2,opt,name=volumeSource"`
	Group string `json:"group,omitempty" protobuf:"bytes,3,opt,name=group"`
	Class *string `json:"class,omitempty" protobuf:"bytes,4,opt,name=class"`
	Spec Spec `json:"spec,omitempty" protobuf:"bytes,5,opt,name=spec"`
	Made Time `json:"made,omitempty,omitzero" protobuf:"bytes,6,opt,name=made"`
	Ref string `json:"$ref,omitempty" protobuf:"bytes,7,opt,name=ref"`
}
"#;
    const PROTO: &str = r"
package k8s.io.api.core.v1;
// x = 1;
message Volume {
  // y = 2;
  optional string name = 1;
  optional VolumeSource volumeSource = 2;
  optional string group = 3;
  optional string class = 4;
  optional Spec spec = 5;
  optional .k8s.io.apimachinery.pkg.apis.meta.v1.Time made = 6;
  optional string ref = 7;
  map<string, .k8s.io.apimachinery.pkg.api.resource.Quantity> limits = 8;
  repeated int32 groups = 9;
}
";

    #[test]
    fn fields_have_the_names_of_json_and_a_mark_when_their_zero_is_omitted() {
        let mut tags = Tags::new();
        read_go(GO, &mut tags);
        let messages = read_proto(PROTO, &tags).unwrap();
        let fields: Vec<&str> = messages["core.v1.Volume"]
            .values()
            .map(String::as_str)
            .collect();
        let expected = [
            "name text",
            "+ core.v1.VolumeSource",
            "group text ?",
            "class text",
            "spec core.v1.Spec",
            "made meta.v1.Time ?",
            "$ref text ?",
            "limits map api.resource.Quantity",
            "groups []int32",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn the_message_of_a_field_is_found() {
        assert_eq!(
            inner("limits map api.resource.Quantity").unwrap(),
            "api.resource.Quantity"
        );
        assert_eq!(inner("x []core.v1.Port").unwrap(), "core.v1.Port");
        assert_eq!(inner("x text ?"), None);
    }
}
