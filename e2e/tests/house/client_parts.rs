//! The parts of the client keep their books in private fields, as ARCHITECTURE.md says.
//!
//! Model: a part is what a field of `Client` or of `State` holds, by the name of its type, if a struct of
//! that name is declared in `shared/client/src` for others than its own file. Any other comes from another
//! room, which the list says by its imports; a bare map or list is none, for anybody could change it. What
//! the client was set up with (`ClientConfig`) is no part, and `State` is a list of parts itself. Not seen:
//! fields of what a part holds.

use std::collections::BTreeSet;

use crate::none;
use crate::own_code::own_texts;

/// Where each of the two lists of parts is.
const LISTS: [(&str, &str); 2] = [("machine.rs", "Client"), ("state.rs", "State")];
const NO_PARTS: [&str; 2] = ["ClientConfig", "State"];

#[test]
fn no_part_of_the_client_shows_a_field() {
    let room = "shared/client/src/";
    let texts = own_texts().into_iter().filter(|(path, _)| path.starts_with(room) && path.ends_with(".rs"));
    let texts: Vec<(String, String)> = texts.collect();
    let text =
        |file: &str| texts.iter().find(|(path, _)| *path == format!("{room}{file}")).unwrap().1.as_str();
    let mut shown = Vec::new();
    for (file, list) in LISTS {
        let parts: BTreeSet<String> = types(body(text(file), list).unwrap()).into_iter().collect();
        for part in parts.iter().filter(|part| !NO_PARTS.contains(&part.as_str())) {
            let declared = texts.iter().find_map(|(path, text)| Some((path, body(text, part)?)));
            match declared {
                Some((path, body)) => {
                    shown.extend(shown_fields(body).map(|field| format!("{path}: {field} of {part}")));
                }
                None if is_imported(text(file), part) => {}
                None => shown.push(format!("{file}: a bare {part}")),
            }
        }
    }
    none(&shown, "fields that are visible outside their part");
}

#[test]
fn a_field_that_is_shown_is_found() {
    let text =
        "pub(crate) struct Part {\n    /// Its pub.\n    own: u8,\n    pub(crate) shown: Vec<Other>,\n}\n";
    let fields = body(text, "Part").unwrap();
    assert_eq!(shown_fields(fields).collect::<Vec<_>>(), ["shown"]);
    assert_eq!(types(fields), ["Vec"]);
    assert_eq!((body(text, "Par"), body(text, "Other")), (None, None));
    for (text, shown) in [
        ("pub(crate) struct Part<T> {\n    own: u8,\n    pub(crate) made: T,\n}\n", &["made"][..]),
        ("pub(crate) struct Part(u8, pub(crate) Vec<u8>);\n", &["Vec<u8>"]),
        ("pub struct Part(Vec<u8>);\npub(crate) struct Other(pub u8);\n", &[]),
    ] {
        assert_eq!(shown_fields(body(text, "Part").unwrap()).collect::<Vec<_>>(), shown);
    }
    assert_eq!(body("struct Part {\n    pub shown: u8,\n}\n", "Part"), None, "its file's own");
    let imports =
        "\nuse fallow_policy::a::Part;\nuse fallow_policy::b::{\n    More, Parts,\n};\nuse crate::c::Bare;\n";
    assert!(is_imported(imports, "Part") && is_imported(imports, "Parts"));
    assert!(!is_imported(imports, "Mor") && !is_imported(imports, "Bare"));
}

/// What stands between the braces, or the parentheses, of a struct that others than its own file can name.
fn body<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let declarations = text.match_indices("struct ");
    let mut declared = declarations.filter(|(at, _)| {
        let line = text[..*at].rsplit('\n').next().unwrap_or_default();
        line.starts_with("pub")
    });
    declared.find_map(|(at, word)| {
        let rest = text[at + word.len()..].strip_prefix(name)?;
        match rest.chars().next()? {
            '(' => rest[1..].split_once(");").map(|(body, _)| body),
            '<' | ' ' => rest.split_once("{\n")?.1.split_once("\n}").map(|(body, _)| body),
            _ => None,
        }
    })
}

/// Whether a file takes a type of that name from another room.
fn is_imported(text: &str, name: &str) -> bool {
    let imports = text.split("\nuse fallow_").skip(1).filter_map(|rest| rest.split(';').next());
    imports
        .flat_map(|import| import.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .any(|word| word == name)
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

/// The fields that others than the file itself can see, by their names, or by their types where they have
/// none.
fn shown_fields(body: &str) -> impl Iterator<Item = &str> {
    let named = fields(body).map(|(name, _)| name);
    let unnamed = body.split(", ").map(str::trim).filter(|_| !body.contains('\n'));
    let shown = named.chain(unnamed).filter(|field| field.starts_with("pub"));
    shown.filter_map(|field| field.rsplit(' ').next())
}
