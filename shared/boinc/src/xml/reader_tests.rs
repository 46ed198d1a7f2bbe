//! The dialect's quirks, one table each.

use super::*;
use fallow_domain::Duration;
use proptest::prelude::*;

/// The value of the first child of `<r>`, read as `T`; `None` if it is not of that kind.
fn value<T: Value>(child: &str) -> Option<T> {
    let text = format!("<r>{child}</r>");
    let mut reader = Reader::new("test", text.as_bytes());
    let root = reader.root("r").unwrap();
    let tag = reader.next_child(&root).unwrap().unwrap();
    let value = T::read(&mut reader, &tag).unwrap();
    assert!(reader.next_child(&root).unwrap().is_none(), "{child} was not read to its end");
    value
}

/// The names of the children of `<r>`, each skipped.
fn children(content: &str) -> Vec<String> {
    let text = format!("<r>{content}</r>");
    let mut reader = Reader::new("test", text.as_bytes());
    let root = reader.root("r").unwrap();
    let mut names = Vec::new();
    while let Some(tag) = reader.next_child(&root).unwrap() {
        names.push(tag.name.to_owned());
        reader.skip(&tag).unwrap();
    }
    names
}

#[test]
fn a_truth_value_has_four_forms_and_an_empty_element_is_none_of_them() {
    for (text, expected) in [
        ("<x/>", Some(true)),
        ("<x />", Some(true)),
        ("<x>1</x>", Some(true)),
        ("<x> 0\n</x>", Some(false)),
        ("<x></x>", None),
        ("<x>yes</x>", None),
    ] {
        assert_eq!(value::<bool>(text), expected, "{text}");
    }
}

#[test]
fn a_whole_number_may_be_decimal_hexadecimal_or_octal_and_is_whole() {
    for (text, expected) in [
        ("<x>42</x>", Some(42)),
        ("<x> -7 </x>", Some(-7)),
        ("<x>+7</x>", Some(7)),
        ("<x>0x1F</x>", Some(31)),
        ("<x>010</x>", Some(8)),
        ("<x></x>", Some(0)),
        ("<x/>", None),
        ("<x>1.5</x>", None),
        ("<x>12 apples</x>", None),
        ("<x>-</x>", None),
        ("<x>0x-1</x>", None),
        ("<x>99999999999999999999</x>", None),
    ] {
        assert_eq!(value::<i64>(text), expected, "{text}");
    }
    assert_eq!(value::<u32>("<x>-1</x>"), None);
}

#[test]
fn a_floating_point_number_is_finite() {
    for (text, expected) in [
        ("<x>377.280000</x>", Some(377.28)),
        ("<x>1e9</x>", Some(1e9)),
        ("<x></x>", Some(0.0)),
        ("<x>nan</x>", None),
        ("<x>inf</x>", None),
        ("<x>1,5</x>", None),
    ] {
        assert_eq!(value::<f64>(text), expected, "{text}");
    }
    assert_eq!(value::<Duration>("<x>7.5</x>"), Some(Duration::from_millis(7_500)));
}

#[test]
fn text_is_trimmed_and_unescaped_and_holds_no_elements() {
    for (text, expected) in [
        ("<x>\n  in1 in2\n</x>", Some("in1 in2")),
        ("<x>a &lt; b &amp;&#195;&#169;</x>", Some("a < b &é")),
        ("<x>http://h/?a=1&auth=2</x>", Some("http://h/?a=1&auth=2")),
        ("<x>1 < 2</x>", Some("1 < 2")),
        ("<x/>", Some("")),
        ("<x></x>", Some("")),
        ("<x>\n<![CDATA[ <b>&amp;</b> ]]>\n</x>", Some(" <b>&amp;</b> ")),
        ("<x>a<![CDATA[b]]></x>", None),
        ("<x><![CDATA[b]]>a</x>", None),
        ("<x>a <b>bold</b> word</x>", None),
    ] {
        assert_eq!(value::<String>(text).as_deref(), expected, "{text}");
    }
    assert_eq!(value::<String>(&format!("<x>{}</x>", "a".repeat(TEXT_MAX + 1))), None);
}

#[test]
fn text_that_is_not_utf8_is_marked_and_a_nul_ends_the_input() {
    let mut reader = Reader::new("test", b"<r><x>caf\xe9</x></r>");
    let root = reader.root("r").unwrap();
    let tag = reader.next_child(&root).unwrap().unwrap();
    assert_eq!(reader.text(&tag).unwrap().unwrap(), "caf\u{fffd}");

    let mut reader = Reader::new("test", b"<r>\0</r>");
    let root = reader.root("r").unwrap();
    assert!(reader.next_child(&root).is_err());
}

#[test]
fn an_unknown_element_is_skipped_with_all_it_holds() {
    assert_eq!(children("<bogus><request_delay>1234</request_delay></bogus><x/>"), ["bogus", "x"]);
    assert_eq!(children("<a><a><b/></a><![CDATA[</a>]]><!-- </a> --></a><x/>"), ["a", "x"]);
}

#[test]
fn an_unknown_tag_without_its_end_is_passed_over_alone() {
    assert_eq!(children("<flag><x/>"), ["flag", "x"]);
    assert_eq!(children("<a><b></a><x/>"), ["a", "b", "x"]);
    assert_eq!(children("</stray><x/></r2>"), ["x"]);
}

#[test]
fn an_attribute_is_found_by_its_name() {
    let tag = open_tag(b"message priority=\"high\" x=\"1\"", 0, 0);
    assert_eq!(
        (tag.attribute("priority"), tag.attribute("x"), tag.attribute("y")),
        (Some("high"), Some("1"), None)
    );
    assert_eq!(open_tag(b"message priority=high", 0, 0).attribute("priority"), None);
}

#[test]
fn a_raw_block_is_taken_byte_for_byte_up_to_its_literal_end() {
    let mut reader = Reader::new("test", b"<r><k>\n<b>&amp;</c>\n</k><x/></r>");
    let root = reader.root("r").unwrap();
    let tag = reader.next_child(&root).unwrap().unwrap();
    assert_eq!(reader.raw(&tag).unwrap(), b"\n<b>&amp;</c>\n");
    assert_eq!(reader.next_child(&root).unwrap().unwrap().name, "x");
}

#[test]
fn a_root_is_found_behind_junk_and_is_not_confused_with_longer_names() {
    let text = b"<?xml version=\"1.0\"?><br>1 < 2 <rr>\n<!-- <r --><r a=\"b\"></r>";
    assert!(Reader::new("test", text).root("r").is_ok());
    let error = Reader::new("test", b"\n<rr></rr>").root("r").unwrap_err();
    assert_eq!(error.to_string(), "cannot read the test: expected <r> at line 2 (byte 10)");
}

#[test]
fn what_has_no_end_or_no_bound_is_an_error() {
    let deep = format!("<r>{}", "<a>".repeat(100));
    let long = format!("<r><{}>", "a".repeat(TAG_MAX));
    for (text, expected) in [
        ("<r><x>", "</r> before the end"),
        ("<r><![CDATA[", "]]> after"),
        ("<r><!-- ", "--> after"),
        (deep.as_str(), "at most 64 deep"),
        (long.as_str(), "> within 4096 bytes"),
    ] {
        let mut reader = Reader::new("test", text.as_bytes());
        let root = reader.root("r").unwrap();
        let error = loop {
            match reader.next_child(&root) {
                Ok(Some(tag)) => {
                    if let Err(error) = reader.skip(&tag) {
                        break error;
                    }
                }
                Ok(None) => panic!("{text} was taken for whole"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn hostile_nesting_is_read_in_linear_time() {
    // 60 unknown elements whose ends are missing, before many whole ones: each is looked at once per level.
    let text = format!("<r>{}{}</r>", "<a>".repeat(60), "<b></b>".repeat(20_000));
    let mut reader = Reader::new("test", text.as_bytes());
    let root = reader.root("r").unwrap();
    let mut count = 0;
    while let Some(tag) = reader.next_child(&root).unwrap() {
        reader.skip(&tag).unwrap();
        count += 1;
    }
    assert_eq!(count, 20_060);
}

proptest! {
    #[test]
    fn any_text_survives_writing_and_reading(text in "[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]{0,60}") {
        let mut writer = super::super::Writer::new();
        writer.text("x", &text);
        // White space around text does not count, unless it is escaped.
        let read = value::<String>(&writer.finish()).unwrap();
        prop_assert_eq!(read.trim_matches([' ', '\t']), text.trim_matches([' ', '\t']));
    }

    #[test]
    fn no_bytes_harm_the_reader(content in "(<|>|/|r|x|!\\[CDATA\\[|\\]\\]>|<!--|-->|&#| |</r>|<x>|</x>|é){0,40}") {
        let text = format!("<r>{content}");
        let mut reader = Reader::new("test", text.as_bytes());
        let Ok(root) = reader.root("r") else { return Ok(()) };
        while let Ok(Some(tag)) = reader.next_child(&root) {
            if reader.text(&tag).is_err() {
                break;
            }
        }
    }
}
