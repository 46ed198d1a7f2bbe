//! Compiles the .proto files with a compiler written in Rust, so that no protoc is needed. What they say,
//! with their comments, is kept for those who ask a coordinator what can be asked of it, and how their
//! messages lie in memory for those who decode them (`src/layout.rs`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use protox::prost::Message as _;
use protox::prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use protox::prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
};

/// Values that are much longer than others in their place, or are mostly absent, are kept elsewhere: each of
/// the others would take their place.
const BOXED: [&str; 2] = [".fallow.fleet.v1.Entry.value.host", ".fallow.fleet.v1.Preferences.local"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["fallow/fleet/v1/fleet.proto", "fallow/operator/v1/operator.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("descriptors.bin"), descriptors.encode_to_vec())?;
    std::fs::write(Path::new(&out).join("layouts.rs"), layouts(&descriptors)?)?;
    let configured = tonic_prost_build::configure().codec_path("crate::codec::SmallCodec");
    BOXED.into_iter().fold(configured, |configured, path| configured.boxed(path)).compile_fds(descriptors)?;
    Ok(())
}

/// The layouts of all messages, and which of them are asked and answered.
fn layouts(descriptors: &FileDescriptorSet) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for file in &descriptors.file {
        for message in &file.message_type {
            write_layout(&mut text, file, message)?;
        }
    }
    let methods =
        || descriptors.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let asked: BTreeSet<&str> = methods().map(|method| method.input_type()).collect();
    let answered: BTreeSet<&str> = methods().map(|method| method.output_type()).collect();
    for name in asked.union(&answered) {
        let room = match (name.starts_with(".fallow.fleet."), asked.contains(name)) {
            (true, _) => "LINK",
            (false, true) => "REQUEST",
            (false, false) => "ANSWER",
        };
        writeln!(
            text,
            "impl Decodable for {} {{ const ROOM: Room = Room::{room}; \
             fn layout() -> &'static Layout {{ &{} }} }}",
            rust_type(name),
            constant(name)
        )?;
    }
    Ok(text)
}

fn write_layout(
    text: &mut String,
    file: &FileDescriptorProto,
    message: &DescriptorProto,
) -> Result<(), std::fmt::Error> {
    let name = format!(".{}.{}", file.package(), message.name());
    // A map is one of these, too.
    assert!(message.nested_type.is_empty(), "{name}: maps and messages within messages have no layout here");
    let last = message.field.iter().map(FieldDescriptorProto::number).max().unwrap_or(0);
    let kinds: Vec<String> = (0..=last)
        .map(|number| {
            let field = message.field.iter().find(|field| field.number() == number);
            field.map_or_else(|| "Kind::Plain".to_owned(), |field| kind(&name, message, field))
        })
        .collect();
    writeln!(
        text,
        "static {}: Layout = Layout {{ bytes: size_of::<{}>(), fields: &[{}] }};",
        constant(&name),
        rust_type(&name),
        kinds.join(", ")
    )
}

fn kind(name: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let is_repeated = field.label() == Label::Repeated;
    match (field.r#type(), is_repeated) {
        (Type::Message, true) => format!("Kind::Messages(&{})", constant(field.type_name())),
        (Type::Message, false) => {
            let oneof = field.oneof_index.and_then(|index| message.oneof_decl.get(index as usize));
            let path = match oneof {
                Some(oneof) => format!("{name}.{}.{}", oneof.name(), field.name()),
                None => format!("{name}.{}", field.name()),
            };
            let is_boxed = BOXED.contains(&path.as_str());
            let kind = if is_boxed { "Boxed" } else { "Message" };
            format!("Kind::{kind}(&{})", constant(field.type_name()))
        }
        (Type::String | Type::Bytes, true) => "Kind::Texts".to_owned(),
        (Type::String | Type::Bytes, false) => "Kind::Text".to_owned(),
        (_, true) => "Kind::Numbers".to_owned(),
        (_, false) => "Kind::Plain".to_owned(),
    }
}

/// Such as `FALLOW_FLEET_V1_ENTRY`.
fn constant(name: &str) -> String {
    name.trim_start_matches('.').replace('.', "_").to_uppercase()
}

/// Such as `crate::fleet::v1::Entry`.
fn rust_type(name: &str) -> String {
    name.replacen(".fallow.", "crate::", 1).replace('.', "::")
}
