//! One message between JSON, as protobuf's mapping has it, and the bytes that gRPC carries.

use prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::de::DeserializeSeed as _;
use tonic::Status;

use super::once::Once;

/// What comes before each message in gRPC: whether it is compressed, and its length in four bytes.
pub(super) const HEAD: usize = 5;

/// Values in a message, about: each takes up to a KiB of memory meanwhile, however short its text is.
const VALUES_MAX: usize = 1 << 19;

/// A message of JSON for gRPC, with its head.
///
/// # Errors
/// INVALID_ARGUMENT, which names the field; OUT_OF_RANGE for one with too many.
pub(super) fn to_grpc(kind: &MessageDescriptor, json: &[u8]) -> Result<Vec<u8>, Status> {
    let message = read(kind, json)?;
    let length = message.encoded_len();
    let said = u32::try_from(length).map_err(|_| Status::out_of_range("the message has 4 GiB or more"))?;
    let mut bytes = Vec::with_capacity(HEAD + length);
    bytes.push(0);
    bytes.extend_from_slice(&said.to_be_bytes());
    message.encode_raw(&mut bytes);
    Ok(bytes)
}

fn read(kind: &MessageDescriptor, json: &[u8]) -> Result<DynamicMessage, Status> {
    // A request without fields, as `curl -X POST` sends it.
    if json.trim_ascii().is_empty() {
        return Ok(DynamicMessage::new(kind.clone()));
    }
    if count(json) > VALUES_MAX {
        let text = format!("the message has more than {VALUES_MAX} values: send it in pieces");
        return Err(Status::out_of_range(text));
    }
    let unfit = |at: String, error: &serde_json::Error| {
        // Of the whole message it says ".", and of what is no JSON at all "?".
        let at = if at == "." || at == "?" { String::new() } else { format!("{at}: ") };
        Status::invalid_argument(format!(
            "the body is no {} in JSON: {at}{error}; /v1/openapi.json says which fields there are",
            kind.name()
        ))
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let read = DynamicMessage::deserialize_with_options(kind.clone(), tracked, &options);
    let message = read.map_err(|error| unfit(track.path().to_string(), &error))?;
    reader.end().map_err(|error| unfit(".".to_owned(), &error))?;
    let mut reader = serde_json::Deserializer::from_slice(json);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    let once = Once.deserialize(tracked);
    once.map_err(|error| unfit(track.path().to_string(), &error))?;
    Ok(message)
}

/// How many values a text of JSON has at most.
fn count(json: &[u8]) -> usize {
    let (mut values, mut is_in_text) = (1, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_in_text = !is_in_text,
            // Whatever comes next does not end the text.
            b'\\' if is_in_text => drop(bytes.next()),
            b',' | b'[' | b'{' if !is_in_text => values += 1,
            _ => {}
        }
    }
    values
}

/// A message of gRPC, without its head, as JSON on one line. Fields say what they are also where that is
/// nothing: 0, false, an empty text.
///
/// # Errors
/// INTERNAL for bytes that are no such message.
pub(super) fn to_json(kind: &MessageDescriptor, message: &[u8]) -> Result<Vec<u8>, Status> {
    let unfit = |error: &dyn std::fmt::Display| {
        Status::internal(format!("the answer is no {} in JSON: {error}", kind.name()))
    };
    let message = DynamicMessage::decode(kind.clone(), message).map_err(|error| unfit(&error))?;
    let mut json = Vec::new();
    let options = SerializeOptions::new().skip_default_fields(false);
    let mut writer = serde_json::Serializer::new(&mut json);
    message.serialize_with_options(&mut writer, &options).map_err(|error| unfit(&error))?;
    json.push(b'\n');
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost_reflect::DescriptorPool;
    use tonic::Code;

    fn kind(name: &str) -> MessageDescriptor {
        let pool = DescriptorPool::decode(fallow_proto::DESCRIPTORS).unwrap();
        pool.get_message_by_name(&format!("fallow.operator.v1.{name}")).unwrap()
    }

    #[test]
    fn r6_11_a_message_comes_back_with_all_its_fields_and_long_numbers_as_text() {
        let kind = kind("SubmitRequest");
        let json =
            br#"{"project": "sieve", "workunits": [{"inputs": [{"open_name": "in", "content": "eA=="}],
            "delayBoundMicros": "9007199254740993", "memoryBoundBytes": 7}]}"#;
        let bytes = to_grpc(&kind, json).unwrap();
        let length = u32::try_from(bytes.len() - HEAD).unwrap();
        assert_eq!(bytes[..HEAD], [&[0][..], &length.to_be_bytes()].concat());
        let request = fallow_proto::operator::v1::SubmitRequest::decode(&bytes[HEAD..]).unwrap();
        let workunit = &request.workunits[0];
        assert_eq!((workunit.delay_bound_micros, workunit.memory_bound_bytes), (9_007_199_254_740_993, 7));
        assert_eq!(workunit.inputs[0].content, b"x");
        let json: serde_json::Value =
            serde_json::from_slice(&to_json(&kind, &bytes[HEAD..]).unwrap()).unwrap();
        assert_eq!(json["workunits"][0]["delayBoundMicros"], "9007199254740993");
        assert_eq!(json["workunits"][0]["inputs"][0]["content"], "eA==");
        assert_eq!(json["workunits"][0]["quorum"], 0, "what is nothing is said as well");
    }

    #[test]
    fn r6_11_a_body_without_anything_is_a_request_without_fields() {
        for nothing in ["", " \n", "{}"] {
            assert_eq!(to_grpc(&kind("ListHostsRequest"), nothing.as_bytes()).unwrap(), [0; HEAD]);
        }
    }

    #[test]
    fn r6_11_what_does_not_fit_is_named_with_its_place() {
        for (json, said) in [
            (r#"{"selektor": ""}"#, "unrecognized field name 'selektor' at line 1"),
            (r#"{"workunits": [{}, {"flops": 1}]}"#, "workunits[1]: unrecognized field name 'flops'"),
            (r#"{"workunits": [{"quorum": -1}]}"#, "workunits[0].quorum: "),
            (r#"{"workunits": [{"quorum": 4294967296}]}"#, "workunits[0].quorum: "),
            (r#"{"workunits": [{"flopsEstimate": "much"}]}"#, "workunits[0].flopsEstimate: "),
            (
                r#"{"workunits": [{"inputs": [{"content": "%"}]}]}"#,
                "workunits[0].inputs[0].content: invalid base64",
            ),
            (r#"{"workunits": 3}"#, "workunits: invalid type"),
            (
                r#"{"workunits": [{}, {"quorum": 1, "quorum": 2}]}"#,
                "workunits[1]: field 'quorum' stands there twice",
            ),
            (r#"{"project": "a", "\u0070roject": "a"}"#, "field 'project' stands there twice"),
            (r#"{"project": 3}"#, "project: invalid type"),
            ("[]", "invalid type"),
            ("{} {}", "trailing characters"),
            (r#"{"project": "#, "EOF while parsing"),
            ("\u{fffd}", "expected value at line 1"),
        ] {
            let status = to_grpc(&kind("SubmitRequest"), json.as_bytes()).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{json}");
            let message = status.message();
            let begins = "the body is no SubmitRequest in JSON: ";
            assert!(message.starts_with(begins) && message.contains(said), "{json}: {message}");
        }
        let json = br#"{"role": "OPERATOR_ROLE_KING"}"#;
        let status = to_grpc(&kind("CreateOperatorRequest"), json).unwrap_err();
        assert!(status.message().contains("role: unrecognized enum value"), "{status}");
    }

    #[test]
    fn r6_11_a_message_of_very_many_values_is_an_error_however_short_it_is() {
        let request = |count: usize| format!("{{\"workunits\":[{}{{}}]}}", "{},".repeat(count));
        let status = to_grpc(&kind("SubmitRequest"), request(VALUES_MAX).as_bytes()).unwrap_err();
        assert!(status.code() == Code::OutOfRange && status.message().contains("in pieces"), "{status}");
        to_grpc(&kind("SubmitRequest"), request(1_000).as_bytes()).unwrap();
        // What stands in a text is none.
        assert_eq!(count(br#"{"a,[{": "\",[{\\", "b": [1, 2]}"#), 5);
    }

    /// JSON, more or less.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = proptest::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "\"workunits\":",
            "\"inputs\":",
            "\"content\":",
            "\"eA==\"",
            "\"quorum\":",
            "null",
            "true",
            "1e999",
            "-1",
            "18446744073709551616",
            "\"NaN\"",
            "\"flopsEstimate\":",
            "\u{e9}",
        ]);
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Shows R6.11.
        #[test]
        fn whatever_comes_is_a_message_that_the_service_can_read_or_an_error_of_the_callers(
            json in pieces(), bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            for text in [json.as_bytes(), &bytes] {
                match to_grpc(&kind("SubmitRequest"), text) {
                    Ok(message) => {
                        let read = fallow_proto::operator::v1::SubmitRequest::decode(&message[HEAD..]);
                        prop_assert!(read.is_ok(), "{text:?}: {read:?}");
                    }
                    Err(status) => prop_assert_eq!(status.code(), Code::InvalidArgument, "{:?}", text),
                }
            }
        }
    }

    #[test]
    fn r6_11_a_message_that_is_nested_without_end_is_an_error() {
        let json = "[".repeat(1 << 20);
        assert!(to_grpc(&kind("SubmitRequest"), json.as_bytes()).is_err());
        let json = format!("{{\"workunits\":{json}");
        assert!(to_grpc(&kind("SubmitRequest"), json.as_bytes()).is_err());
    }
}
