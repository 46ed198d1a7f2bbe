//! What operators write of groups (R6.4).

use fallow_domain::{DocumentVersion, FleetDocument, Labels, Preferences};
use fallow_fleet::{
    Change, DocumentSet, Effective, GroupText, Groups, Selector, Statement, signed_form, values_of,
};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target::new("group", "", |bytes| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let fleet = FleetDocument {
            content: String::new(),
            version: DocumentVersion(1),
            projects: Vec::new(),
            preferences: Preferences::default(),
        };
        let set = DocumentSet { fleet, groups: Groups::default() };
        let change = Change { files: vec![GroupText { file: "file".to_owned(), text }], ..Change::default() };
        let Ok(groups) = change.groups(&set) else { return };
        let stored = serde_json::to_string(&groups).unwrap();
        assert_eq!(serde_json::from_str::<Groups>(&stored).unwrap(), groups);
        let set = DocumentSet { groups, ..set };
        let _ = Effective::of(&set, &Labels::default()).document(&set).check();
    }),
    // What was signed is believed, but the one who signs reads what a coordinator says that there is to sign.
    Target::new("signed_documents", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(set) = serde_json::from_str::<DocumentSet>(&text) else { return };
        let _ = (values_of(&set), set.problems().len());
        let _ = Effective::of(&set, &Labels::default()).document(&set).check();
        let form = signed_form(&set).unwrap();
        assert_eq!(signed_form(&serde_json::from_str(&form).unwrap()).unwrap(), form);
    }),
    Target::new("statement", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(statement) = Statement::parse(&text) else { return };
        assert_eq!(statement.text(), text);
    }),
    Target::new("selector", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(selector) = text.parse::<Selector>() else { return };
        assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
    }),
    Target::new("label", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(labels) = Labels::read(text.split_whitespace()) else { return };
        assert_eq!(Labels::read(labels.to_string().split_whitespace()).unwrap(), labels);
    }),
];
