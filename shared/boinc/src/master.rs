//! A project's master page: a web page that says where the project's scheduler is (R1.6).
//!
//! BOINC's clients look for two literal forms, line by line of at most 255 bytes:
//! `<scheduler>URL</scheduler>`, also inside comments, and `<link rel="boinc_scheduler" href="URL"` in
//! exactly this spelling. The reader here finds both anywhere, also across the 255-byte border that trips
//! BOINC's. Other spellings of the link are not accepted, as there.

use crate::xml::{find, unescape};

/// Longest URL: BOINC's buffer.
const URL_MAX: usize = 255;
/// As many URLs as a client could ever try in turn.
const URLS_MAX: usize = 32;

/// The scheduler URLs that a master page names, each once, in its order. None means that the page is no
/// master page.
pub fn scheduler_urls(page: &[u8]) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (before, after) in [("<scheduler>", "</scheduler>"), ("<link rel=\"boinc_scheduler\" href=\"", "\"")]
    {
        let mut from = 0;
        while let Some(at) = find(page, before.as_bytes(), from) {
            from = at + before.len();
            let window = &page[from..page.len().min(from + URL_MAX + 64)];
            let url = find(window, after.as_bytes(), 0).and_then(|len| scheduler_url(&window[..len]));
            let Some(url) = url else { continue };
            if let Some((first, _)) = found.iter_mut().find(|(_, known)| *known == url) {
                *first = at.min(*first);
            } else if found.len() < URLS_MAX {
                found.push((at, url));
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, url)| url).collect()
}

fn scheduler_url(raw: &[u8]) -> Option<String> {
    let url = unescape(raw.trim_ascii()).into_owned();
    let plain = url.chars().all(|c| !c.is_whitespace() && !c.is_control() && !matches!(c, '<' | '>' | '"'));
    let web = url.starts_with("http://") || url.starts_with("https://");
    (web && plain && url.len() <= URL_MAX).then_some(url)
}

/// A master page for people and clients: the project's name, a paragraph about it, and its schedulers in both
/// forms.
pub fn write(project_name: &str, about: &str, scheduler_urls: &[String]) -> String {
    let mut page =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
    page.push_str(&html(project_name));
    page.push_str("</title>\n");
    let scheduler_urls: Vec<String> = scheduler_urls.iter().map(|url| html(url)).collect();
    for url in &scheduler_urls {
        page.push_str(&format!("<link rel=\"boinc_scheduler\" href=\"{url}\">\n"));
    }
    page.push_str("</head>\n<body>\n<h1>");
    page.push_str(&html(project_name));
    page.push_str("</h1>\n<p>");
    page.push_str(&html(about));
    page.push_str("</p>\n<!--\n");
    for url in &scheduler_urls {
        page.push_str(&format!("<scheduler>{url}</scheduler>\n"));
    }
    page.push_str("-->\n</body>\n</html>\n");
    page
}

/// Text for a web page. BOINC's own escapes are one per byte and would come out as other letters.
fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_holds_markup_is_none() {
        let page = br#"<link rel="boinc_scheduler" href="http://127</scheduler>.0/cgi">"#;
        assert_eq!(scheduler_urls(page), Vec::<String>::new());
    }

    #[test]
    fn both_forms_are_found_and_other_spellings_are_not() {
        let page = br#"<html><head>
<link rel="boinc_scheduler" href="http://127.0.0.1/a/cgi">
<link rel='boinc_scheduler' href='http://127.0.0.1/b/cgi'>
<LINK REL="boinc_scheduler" HREF="http://127.0.0.1/c/cgi">
<link href="http://127.0.0.1/d/cgi" rel="boinc_scheduler">
<!-- <scheduler>http://127.0.0.1/e/cgi</scheduler><scheduler> https://127.0.0.1/f/cgi </scheduler> -->
<scheduler>http://127.0.0.1/a/cgi</scheduler>
<scheduler>ftp://127.0.0.1/g</scheduler><scheduler>http://127.0.0.1/h i</scheduler>"#;
        assert_eq!(
            scheduler_urls(page),
            ["http://127.0.0.1/a/cgi", "http://127.0.0.1/e/cgi", "https://127.0.0.1/f/cgi"]
        );
        assert!(scheduler_urls(b"<html>404</html>").is_empty());
    }

    #[test]
    fn an_address_with_an_escape_in_it_is_read_back_as_it_was_written() {
        let urls = vec!["http://127.0.0.1/?a&amp;b&c&#60;".to_owned()];
        assert_eq!(scheduler_urls(write("Primes", "", &urls).as_bytes()), urls);
    }

    #[test]
    fn a_written_page_names_its_schedulers_once_each_and_holds_short_lines() {
        let urls = vec!["http://127.0.0.1:9/mersenne_cgi/cgi".to_owned()];
        let page = write("Mersenne <&> friends", "Finds primes.", &urls);
        assert_eq!(scheduler_urls(page.as_bytes()), urls);
        assert!(page.lines().all(|line| line.len() < 255));
        assert!(page.contains("Mersenne &lt;&amp;> friends"));
    }
}
