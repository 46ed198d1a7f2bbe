//! What operators write of groups (R6.4).

use fallow_domain::{DocumentVersion, FleetDocument, Labels, Preferences};
use fallow_fleet::{Change, DocumentSet, Effective, GroupText, Groups, Selector};

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
