//! Elements within the short texts of the channel, found as BOINC finds them: anywhere, by their tag.

/// What stands between `<name>` and `</name>`, trimmed.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let after = text.split_once(&format!("<{name}>"))?.1;
    Some(after.split_once(&format!("</{name}>"))?.0.trim())
}

/// A number that is finite; anything else counts as absent.
pub(super) fn number(text: &str, name: &str) -> Option<f64> {
    element(text, name)?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `<name/>`, `<name />` or a `<name>` whose number is not 0.
pub(super) fn flag(text: &str, name: &str) -> bool {
    text.contains(&format!("<{name}/>"))
        || text.contains(&format!("<{name} />"))
        || number(text, name).is_some_and(|number| number != 0.0)
}

/// A number as C's `%e` prints it: `1.234500e+01`. Rust leaves out the sign and the leading zero of the
/// exponent.
pub(super) fn exponential(number: f64) -> String {
    let text = format!("{number:.6e}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        // Infinity and NaN have no exponent.
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_c_prints_them() {
        for (number, text) in [
            (0.0, "0.000000e+00"),
            (12.345, "1.234500e+01"),
            (1e-7, "1.000000e-07"),
            (-2.5e123, "-2.500000e+123"),
        ] {
            assert_eq!(exponential(number), text);
        }
    }

    #[test]
    fn a_number_that_is_none_counts_as_absent() {
        for text in ["<a></a>", "<a>x</a>", "<a>inf</a>", "<a>nan</a>", "<a>1", "", "<b>1</b>"] {
            assert_eq!(number(text, "a"), None, "{text}");
        }
        assert_eq!(number("<b>2</b>\n<a> 1e3 </a>", "a"), Some(1000.0));
    }

    #[test]
    fn a_flag_has_three_forms() {
        assert!(flag("<x/>", "x") && flag("<x />", "x") && flag("<x>1</x>", "x"));
        assert!(!flag("<x>0</x>", "x") && !flag("<xy/>", "x") && !flag("", "x"));
    }
}
