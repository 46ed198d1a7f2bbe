//! The JSON API as OpenAPI 3.1 describes it, made of the `.proto` files and the table of rights, pure.
//!
//! What the comments there say is said here. A method's summary is its comment's first sentence; who may call
//! it stands behind the rest.

use std::collections::BTreeMap;

use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{
    EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, OneofDescriptor,
};
use serde_json::{Map, Value, json};

use super::contract::{Contract, DESCRIPTION, grpc_path, is_operators};
use crate::roles::Role;
use crate::roles::rights::{self, in_words};

const ABOUT: &str = "\
What operators can ask of a Fallow coordinator: the same as over gRPC, with the same rights.

Every request carries an operator's token as `Authorization: Bearer TOKEN`, where TOKEN is the line that the operator \
was given. The coordinator's certificate is of the fleet's authority (`authority.pem` in the coordinator's directory).

Messages are written as protobuf's JSON mapping says: 64-bit numbers are strings, and may be numbers in requests; bytes \
are base64; fields of a request that are left out are 0, false or empty; a field that is not known is an error. A \
request may have 1 MiB. One of Submit, AddAppVersion, ChangeGroups and SignDocuments, or a line where it is of several \
messages, may have 64 MiB and half a million values. One that pauses for a minute is not waited for.

Times are microseconds: instants since the Unix epoch, durations plain.";

const LINES: &str = "The request is of several messages, one a line.";
const LINES_BACK: &str = "The answer is of several messages, one a line. If it ends too soon, its last line is \
    `{\"error\": {\"code\": ..., \"message\": ...}}`.";

/// The description.
#[must_use]
pub fn openapi(contract: &Contract) -> Value {
    let mut paths = Map::new();
    let mut schemas = BTreeMap::new();
    for (path, method) in contract.methods() {
        describe_message(&method.input(), &mut schemas);
        describe_message(&method.output(), &mut schemas);
        paths.insert(path, json!({ "post": operation(&method) }));
    }
    paths.insert(DESCRIPTION.to_owned(), json!({ "get": own_operation() }));
    schemas.insert("Error".to_owned(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fallow: the operators' API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "An operator's token (`fallow operators create`).",
            }},
            "responses": { "Error": {
                "description": "It was not done. The status follows from the code.",
                "content": { "application/json": { "schema": reference("Error") } },
            }},
            "schemas": schemas,
        },
    })
}

fn operation(method: &MethodDescriptor) -> Value {
    let service = method.parent_service();
    let (key, tag) = match is_operators(service) {
        true => (method.name().to_owned(), "Operator"),
        false => (grpc_path(method), "Health"),
    };
    let said = comment(method.parent_file().file_descriptor_proto(), method.path());
    let (several, several_back) = (method.is_client_streaming(), method.is_server_streaming());
    let notes = [several.then_some(LINES), several_back.then_some(LINES_BACK)];
    let texts = [said.as_str()].into_iter().chain(notes.into_iter().flatten());
    let texts: Vec<_> =
        texts.filter(|text| !text.is_empty()).map(str::to_owned).chain([may_call(&key)]).collect();
    let mut operation = json!({
        "operationId": key.trim_start_matches('/').replace(['/', '.'], "_"),
        "tags": [tag],
        "description": texts.join("\n\n"),
        "x-fallow-roles": roles(&key).iter().map(|role| role.word()).collect::<Vec<_>>(),
        "requestBody": { "content": content(several, &method.input()) },
        "responses": {
            "200": { "description": "It was done.", "content": content(several_back, &method.output()) },
            "default": { "$ref": "#/components/responses/Error" },
        },
    });
    if let (Some(summary), Some(operation)) = (first_sentence(&said), operation.as_object_mut()) {
        operation.insert("summary".to_owned(), json!(summary));
    }
    operation
}

/// How this description itself is asked for.
fn own_operation() -> Value {
    json!({
        "operationId": "openapi",
        "tags": ["Description"],
        "summary": "This description",
        "description": may_call(DESCRIPTION),
        "x-fallow-roles": roles(DESCRIPTION).iter().map(|role| role.word()).collect::<Vec<_>>(),
        "responses": {
            "200": {
                "description": "An OpenAPI description.",
                "content": { "application/json": { "schema": { "type": "object" } } },
            },
            "default": { "$ref": "#/components/responses/Error" },
        },
    })
}

fn roles(key: &str) -> &'static [Role] {
    rights::needed(key).map_or(&[], |right| right.roles())
}

fn may_call(key: &str) -> String {
    match roles(key) {
        [] => "May be called with the coordinator's own token alone.".to_owned(),
        roles => format!("May be called as {}.", in_words(roles)),
    }
}

fn content(has_several: bool, kind: &MessageDescriptor) -> Value {
    let schema = json!({ "schema": reference(kind.full_name()) });
    match has_several {
        true => json!({ "application/x-ndjson": schema }),
        false => json!({ "application/json": schema }),
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "description": "Why something was not done.",
        "required": ["code", "message"],
        "properties": {
            "code": { "type": "string", "description": "gRPC's code, such as INVALID_ARGUMENT." },
            "message": { "type": "string", "description": "What is wrong and what to do, for people." },
        },
    })
}

/// Adds the schema of a message, and those of all that it consists of.
fn describe_message(kind: &MessageDescriptor, schemas: &mut BTreeMap<String, Value>) {
    if schemas.contains_key(kind.full_name()) {
        return;
    }
    let mut schema = json!({ "type": "object" });
    // Before its fields: a message may have fields of its own kind.
    schemas.insert(kind.full_name().to_owned(), schema.clone());
    let properties: Map<_, _> =
        kind.fields().map(|field| (field.json_name().to_owned(), field_schema(&field))).collect();
    let said = comment(kind.parent_file().file_descriptor_proto(), kind.path());
    let choices = kind.oneofs().filter(|oneof| !oneof.is_synthetic()).map(|oneof| one_of(&oneof));
    let said: Vec<_> = [said].into_iter().filter(|said| !said.is_empty()).chain(choices).collect();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !said.is_empty() {
            schema.insert("description".to_owned(), json!(said.join("\n\n")));
        }
    }
    schemas.insert(kind.full_name().to_owned(), schema);
    for field in kind.fields() {
        match field.kind() {
            Kind::Message(kind) => describe_message(&kind, schemas),
            Kind::Enum(kind) => {
                schemas.entry(kind.full_name().to_owned()).or_insert_with(|| enum_schema(&kind));
            }
            _ => {}
        }
    }
}

fn one_of(choice: &OneofDescriptor) -> String {
    let names: Vec<_> = choice.fields().map(|field| field.json_name().to_owned()).collect();
    format!("Only one of {}.", names.join(", "))
}

fn field_schema(field: &FieldDescriptor) -> Value {
    let mut schema = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            json!({ "type": "object", "additionalProperties": kind_schema(&entry.map_entry_value_field().kind()) })
        }
        kind if field.is_list() => json!({ "type": "array", "items": kind_schema(&kind) }),
        kind => kind_schema(&kind),
    };
    let message = field.parent_message();
    let said = comment(message.parent_file().file_descriptor_proto(), field.path());
    if let (false, Some(schema)) = (said.is_empty(), schema.as_object_mut()) {
        schema.insert("description".to_owned(), json!(said));
    }
    schema
}

/// As protobuf's JSON mapping writes a value.
fn kind_schema(kind: &Kind) -> Value {
    match kind {
        Kind::Double => json!({ "type": "number", "format": "double" }),
        Kind::Float => json!({ "type": "number", "format": "float" }),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => json!({ "type": "integer", "format": "int32" }),
        Kind::Uint32 | Kind::Fixed32 => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            json!({ "type": "string", "format": "int64", "pattern": "^-?[0-9]+$" })
        }
        Kind::Uint64 | Kind::Fixed64 => {
            json!({ "type": "string", "format": "uint64", "pattern": "^[0-9]+$" })
        }
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::String => json!({ "type": "string" }),
        Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        Kind::Message(kind) => reference(kind.full_name()),
        Kind::Enum(kind) => reference(kind.full_name()),
    }
}

fn enum_schema(kind: &EnumDescriptor) -> Value {
    let file = kind.parent_file();
    let file = file.file_descriptor_proto();
    let names: Vec<_> = kind.values().map(|value| value.name().to_owned()).collect();
    let meanings = kind.values().filter_map(|value| match comment(file, value.path()) {
        said if said.is_empty() => None,
        said => Some(format!("- `{}`: {said}", value.name())),
    });
    let meanings: Vec<_> = meanings.collect();
    let texts = [comment(file, kind.path()), meanings.join("\n")];
    let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    match texts.is_empty() {
        true => json!({ "type": "string", "enum": names }),
        false => json!({ "type": "string", "enum": names, "description": texts.join("\n\n") }),
    }
}

/// What the file says above, or else behind, the thing at this path: its lines as one, but for blank ones
/// between.
fn comment(file: &FileDescriptorProto, path: &[i32]) -> String {
    let mut places = file.source_code_info.iter().flat_map(|info| &info.location);
    let Some(place) = places.find(|place| place.path == path) else { return String::new() };
    let said = place.leading_comments.as_deref().or(place.trailing_comments.as_deref()).unwrap_or_default();
    let paragraphs = said.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Without its full stop.
fn first_sentence(text: &str) -> Option<&str> {
    let first = text.split("\n\n").next()?;
    let first = first.split_once(". ").map_or(first, |(first, _)| first).trim_end_matches('.');
    (!first.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Value {
        openapi(&Contract::read().unwrap())
    }

    /// Everything that stands under this key anywhere.
    fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get(key));
                fields.values().for_each(|value| all(value, key, found));
            }
            Value::Array(values) => values.iter().for_each(|value| all(value, key, found)),
            _ => {}
        }
    }

    #[test]
    fn r6_11_every_method_of_the_contract_is_described_with_what_it_does_and_who_may_call_it() {
        let description = description();
        let contract = include_str!("../../../../proto/fallow/operator/v1/operator.proto");
        let methods = contract.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let methods: Vec<_> = methods.collect();
        assert!(methods.len() > 20, "{methods:?}");
        for method in methods {
            let operation = &description["paths"][format!("/v1/{method}")]["post"];
            assert_eq!(operation["operationId"], method);
            assert!(operation["summary"].is_string(), "say in the .proto file what {method} does");
            let roles = operation["x-fallow-roles"].as_array().unwrap();
            // What the coordinator's own token alone is for, no role may call.
            let is_owners = rights::needed(method) == Some(rights::Right::Own);
            assert_eq!(roles.contains(&json!("administrator")), !is_owners, "{method}: {roles:?}");
        }
        let mut ids = Vec::new();
        all(&description["paths"], "operationId", &mut ids);
        let mut different: Vec<_> = ids.iter().filter_map(|id| id.as_str()).collect();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ids.len());
        let watch = &description["paths"]["/v1/grpc.health.v1.Health/Watch"]["post"];
        assert!(watch["responses"]["200"]["content"]["application/x-ndjson"].is_object(), "{watch}");
        assert!(watch["description"].as_str().unwrap().contains("answer is of several messages"), "{watch}");
        assert!(description["paths"]["/v1/openapi.json"]["get"].is_object());
    }

    #[test]
    fn r6_11_every_reference_of_the_description_leads_somewhere() {
        let description = description();
        let mut references = Vec::new();
        all(&description, "$ref", &mut references);
        assert!(references.len() > 100);
        for reference in references {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(description.pointer(pointer).is_some(), "{pointer} leads nowhere");
        }
    }

    #[test]
    fn r6_11_fields_are_described_as_they_are_written_with_the_comments_of_the_contract() {
        let description = description();
        let schema = |name: &str| description["components"]["schemas"][name].clone();
        let request = schema("fallow.operator.v1.CreateTokensRequest");
        assert_eq!(request["properties"]["count"]["type"], "integer");
        let life = &request["properties"]["lifeMicros"];
        assert_eq!((&life["type"], &life["format"]), (&json!("string"), &json!("int64")));
        assert_eq!(life["description"], "How long each is good; 0 for seven days.");
        let part = schema("fallow.operator.v1.AddAppVersionPart");
        assert_eq!(part["properties"]["content"]["contentEncoding"], "base64");
        assert_eq!(part["description"], "Only one of version, content.");
        let orders = schema("fallow.operator.v1.RolloutOrder");
        assert!(orders["enum"].as_array().unwrap().contains(&json!("ROLLOUT_ORDER_PAUSE")));
        assert!(
            orders["description"].as_str().unwrap().contains("- `ROLLOUT_ORDER_PAUSE`: Release no more.")
        );
        assert!(schema("fallow.fleet.v1.HostState")["properties"].is_object());
    }
}
