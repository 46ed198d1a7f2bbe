//! The table of what hostile jobs could do, and the document that shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::attacks::{ATTACKS, Who};
use crate::column::{Kind, Without};
use crate::endings::Endings;
use crate::{LAYERS, kinds};

const DOCUMENT: &str = "docs/hostile-jobs.md";
const COMMAND: &str = "FALLOW_WRITE_DOCS=1 cargo test --locked -p fallow-e2e --test hostile_jobs";

/// What jobs could do, by agent and attack.
#[derive(Debug, Default)]
pub(crate) struct Found(BTreeMap<String, BTreeMap<usize, bool>>);

impl Found {
    pub(crate) fn add(&mut self, kind: Kind, reached: BTreeMap<usize, bool>) {
        self.0.insert(kind.name(), reached);
    }

    fn of(&self, kind: Kind, number: usize) -> Option<bool> {
        self.0.get(&kind.name())?.get(&number).copied()
    }

    /// What a cell says.
    fn cell(&self, root: bool, without: Without, number: usize) -> &'static str {
        let kind = Kind { root, without };
        match self.of(kind, number) {
            Some(true) => "**yes**",
            Some(false) => "-",
            None => "",
        }
    }

    /// Those layers whose absence alone lets it happen.
    fn layers(&self, root: bool, number: usize) -> Vec<&'static str> {
        let did = |layer: &&'static str| self.cell(root, Without::Layer(layer), number) == "**yes**";
        LAYERS.into_iter().filter(did).collect()
    }

    fn row(&self, number: usize) -> String {
        let attack = &ATTACKS[number];
        let mut row = format!("| {}{}", attack.0, if attack.1 == Who::Perhaps { " ¹" } else { "" });
        for root in [true, false] {
            let all = self.cell(root, Without::Nothing, number);
            let (layers, none) = (self.layers(root, number), self.cell(root, Without::Everything, number));
            let tried = !all.is_empty();
            let layers = match (tried, all) {
                (true, "-") if layers.is_empty() => "-".to_owned(),
                (true, "-") => layers.iter().map(|layer| format!("`{layer}`")).collect::<Vec<_>>().join(", "),
                _ => String::new(),
            };
            let _ = write!(row, " | {all} | {layers} | {none}");
        }
        row + " |\n"
    }
}

/// Holds what was found against what has to be, and against the document; writes that first if asked to.
pub(crate) fn check(found: &Found, ends: &Endings) {
    let rows: Vec<String> = (0..ATTACKS.len()).map(|number| found.row(number)).collect();
    let ended = ends.rows();
    println!("{}\n{}", rows.concat(), ended.concat());
    let mut wrong = ends.wrong();
    for kind in kinds() {
        for (number, attack) in ATTACKS.iter().enumerate().filter(|(_, attack)| kind.can_try(attack)) {
            let did = found.of(kind, number).unwrap_or_else(|| panic!("{} of {}", attack.0, kind.name()));
            let is_right = match (kind.without, attack.1) {
                (Without::Nothing, Who::Always(_)) if kind.root => !did,
                (Without::Layer(layer), Who::Always(layers)) if kind.root => did == layers.contains(&layer),
                (_, Who::Always(_)) => did,
                (Without::Nothing, _) => !did,
                // Else it would show nothing that it fails with the layers.
                (Without::Everything, Who::Perhaps) | (Without::Layer(_), _) => true,
                (Without::Everything, _) => did,
            };
            if !is_right {
                wrong.push(format!("{} ({}): {did}", attack.0, kind.name()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "what jobs could do, and should not, or the other way round; and ends other than they have to be:\n{}",
        wrong.join("\n")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(DOCUMENT);
    if std::env::var("FALLOW_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(&path, document(&rows, &ended)).unwrap();
    }
    let document = fs::read_to_string(&path).unwrap_or_default();
    let is_ordinary = kinds().iter().all(|kind| !kind.root);
    let is_shown = |(number, row): &(usize, &String)| {
        let system = ATTACKS[*number].1 == Who::Perhaps;
        // Whether such an attack is possible at all is this system's to say, and whose agents there are is
        // the test's user's.
        system || is_ordinary || document.contains(row.as_str())
    };
    let mut missing: Vec<String> =
        rows.iter().enumerate().filter(|row| !is_shown(row)).map(|(_, row)| row.trim().to_owned()).collect();
    missing.extend(ended.into_iter().filter(|row| !is_ordinary && !document.contains(row.as_str())));
    assert!(
        missing.is_empty(),
        "{DOCUMENT} lacks; write it anew with\n    {COMMAND}\n{}",
        missing.join("\n")
    );
}

fn document(rows: &[String], ended: &[String]) -> String {
    let mut text = format!(
        "# Hostile jobs\n\
         What jobs could do that mean harm, as `e2e/tests/hostile_jobs` found it: each was a job of a project that an agent was\n\
         attached to. The test holds this page against what happens; it writes it anew with\n\n\
         ```console\n$ {COMMAND}\n```\n\n\
         [Confinement](confinement.md) explains the layers.\n\n\
         ## What is not theirs\n\
         For an agent of root's and for one of an ordinary user's: whether a job could do it with all layers; which single layer has to be\n\
         missing for it to succeed (`-`: none, for another one keeps from it, too); and whether it could without any. An empty field:\n\
         this user could not do it anyway. An ordinary user's job is never without `privileges`, for Linux lets it have no other layer\n\
         then, and never has the layer `user`, which takes an agent of root's.\n\n\
         | what a job tries | root, all layers | root, without | root, none | user, all layers | user, without | user, none |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    text += &rows.concat();
    text += "\n¹ Some systems keep from it by other means of their own.\n\n\
         ## More than they may have\n\
         How such a job ends: with all layers; without a single one, where that changes it (`-`: there is none such); and without any (`-`: as\n\
         with all). After the colon stands what the reason names that its project is told. Most of it is the agent's own doing, which looks at\n\
         its jobs once a second, and needs no layer. Processes and memory are taken bit by bit here, so that the machine of the tests survives it.\n\
         `groups` is off here, for it takes a control group of the agent's own: `e2e/vm/unit` has that, and jobs that fork, or take memory, as\n\
         fast as they can. They fail in the same way.\n\n\
         | what a job does | root, all layers | root, without | root, none | user, all layers | user, without | user, none |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n";
    text += &ended.concat();
    text
}
