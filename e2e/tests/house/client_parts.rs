//! The parts of the client keep their books in private fields, as ARCHITECTURE.md says.
//!
//! Model: a part is what a field of `Client` or of `State` holds, by the name of its type, if a struct of
//! that name is declared in `shared/client/src`; a bare map or list is none, for anybody could change it.
//! What the client was set up with (`ClientConfig`) is no part, and `State` is a list of parts itself. Not
//! seen: fields of what a part holds.

use std::collections::BTreeSet;

use crate::none;
use crate::own_code::own_texts;

/// Where each of the two lists of parts is.
const LISTS: [(&str, &str); 2] = [("machine.rs", "Client"), ("state.rs", "State")];
const NO_PARTS: [&str; 2] = ["ClientConfig", "State"];
/// What anybody can change who sees it.
const BARE: [&str; 5] = ["BTreeMap", "BTreeSet", "Option", "String", "Vec"];

#[test]
fn no_part_of_the_client_shows_a_field() {
    let room = "shared/client/src/";
    let texts = own_texts().into_iter().filter(|(path, _)| path.starts_with(room) && path.ends_with(".rs"));
    let texts: Vec<(String, String)> = texts.collect();
    let text =
        |file: &str| texts.iter().find(|(path, _)| *path == format!("{room}{file}")).unwrap().1.as_str();
    let parts: BTreeSet<String> =
        LISTS.iter().flat_map(|(file, list)| types(body(text(file), list).unwrap())).collect();
    let (mut looked_at, mut shown) = (0, Vec::new());
    for part in parts.iter().filter(|part| !NO_PARTS.contains(&part.as_str())) {
        for (path, text) in &texts {
            let Some(body) = body(text, part) else { continue };
            looked_at += 1;
            shown.extend(shown_fields(body).map(|field| format!("{path}: {field} of {part}")));
        }
    }
    shown.extend(
        parts.iter().filter(|part| BARE.contains(&part.as_str())).map(|part| format!("a bare {part}")),
    );
    assert!(looked_at >= 28, "{looked_at} parts");
    none(&shown, "fields that are visible outside their part");
}

#[test]
fn a_field_that_is_shown_is_found() {
    let text =
        "pub(crate) struct Part {\n    /// Its pub.\n    own: u8,\n    pub(crate) shown: Vec<Other>,\n}\n";
    let fields = body(text, "Part").unwrap();
    assert_eq!(shown_fields(fields).collect::<Vec<_>>(), ["shown"]);
    assert_eq!(types(fields), ["Vec"]);
    assert_eq!(body(text, "Par"), None);
}

/// What stands between the braces of a struct.
fn body<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("struct {name} {{\n"))?;
    rest.split_once("\n}").map(|(body, _)| body)
}

fn fields(body: &str) -> impl Iterator<Item = (&str, &str)> {
    let code = body.lines().map(str::trim).filter(|line| !line.starts_with("//") && !line.starts_with('#'));
    code.filter_map(|line| line.split_once(": "))
}

/// The types of a struct's fields, without what these are made of.
fn types(body: &str) -> Vec<String> {
    let name = |kind: &str| kind.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    fields(body).map(|(_, kind)| name(kind)).filter(|name| name.starts_with(char::is_uppercase)).collect()
}

/// The fields that others than the file itself can see.
fn shown_fields(body: &str) -> impl Iterator<Item = &str> {
    fields(body).filter(|(name, _)| name.starts_with("pub")).filter_map(|(name, _)| name.rsplit(' ').next())
}
