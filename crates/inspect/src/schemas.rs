//! The JSON schemas of `stuck`, `explain`, `status`, the status page and `check` are made of the types.

use std::path::Path;

use rstest::rstest;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::explain::Explanation;
use crate::report::API_VERSION;
use crate::status::{Page, Status};

fn of<T: JsonSchema>() -> String {
    let generator = SchemaSettings::draft2020_12().for_serialize();
    let schema = generator.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    schema["$id"] = format!("{API_VERSION}/{}", T::schema_name()).into();
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

/// `UPDATE_SNAPSHOTS=1` writes them again.
#[rstest]
#[case("status", of::<Status>())]
#[case("page", of::<Page>())]
#[case("check", of::<crate::preflight::Report>())]
#[case("stuck", of::<crate::report::Report>())]
#[case("explain", of::<Explanation>())]
fn inspect_the_json_schemas_match_the_types(#[case] name: &str, #[case] schema: String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let file = folder.join(name).with_extension("json");
    let now = std::fs::read_to_string(&file).unwrap_or_default();
    if now != schema && std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(file, schema).unwrap();
        return;
    }
    assert!(now == schema, "{} is outdated", file.display());
}
