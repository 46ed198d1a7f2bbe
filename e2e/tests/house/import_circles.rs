//! No circle of imports goes over files of different folders of a crate, nor over a folder and what lies
//! beside it.
//!
//! Model: each file is a module, and imports another one where it names something of it by a path from
//! `crate`, `super` or `self`. What a module only passes on (`pub use`, also `::*`) is looked for in the file
//! that declares it. Files of one folder may know each other, and so may a module and those below it: such a
//! pair is no circle, but part of a way that leads through other folders. The root of a crate is left out:
//! all modules are below it.
//!
//! Files that are in no circle may lie in folders that are: a folder's head imports a file beside it, which
//! imports another file of that folder. So each folder is also taken as one, with all that is below it, among
//! what lies beside it.
//!
//! Not seen: names made by macros.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::none;
use crate::own_code::own_texts;

/// A module by the names that lead to it from its crate's root.
type Module = Vec<String>;

#[test]
fn no_circle_of_imports_goes_over_several_folders() {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (path, text) in own_texts().into_iter().filter(|(path, _)| path.ends_with(".rs")) {
        if let Some((room, _)) = path.split_once("/src/") {
            crates.entry(room.to_owned()).or_default().push((path, text));
        }
    }
    let (mut all, mut edges) = (Vec::new(), Vec::new());
    for files in crates.values() {
        all.extend(circles(files, &mut edges));
    }
    // What is read wrongly would be without circles too.
    assert!(crates.len() >= 17 && edges.len() >= 1_200, "{} crates, {} imports", crates.len(), edges.len());
    none(&all, "circles of imports between folders");
}

#[test]
fn a_circle_is_found_through_names_that_are_passed_on_and_named_with_its_lines() {
    let file = |path: &str, text: &str| (format!("room/src/{path}.rs"), text.to_owned());
    let (a, b) = ("mod one;\nmod two;\npub(crate) use one::{One, Other};\n", "mod three;\n");
    let three = "\nuse crate::{\n    First, a::{self, Other as Name, One},\n};\n";
    let files = |one: &str| {
        [
            file("lib", "pub use a::One as First;\n"),
            file("a/mod", a),
            file("a/one", one),
            file("b", b),
            file("b/three", three),
        ]
    };
    assert_eq!(
        circles(&files("use super::two;\n"), &mut Vec::new()),
        [""; 0],
        "only one folder imports the other"
    );
    let found =
        circles(&files("// See crate::c.\nfn f() {\n    crate::b::three::g();\n}\n"), &mut Vec::new());
    let lines = ["b/three.rs:2 imports room/src/a/one.rs", "a/one.rs:3 imports room/src/b/three.rs"];
    let circle: Vec<String> = lines.iter().map(|line| format!("  room/src/{line}")).collect();
    // The one beside it goes over the head of the folder.
    assert_eq!(found.last(), Some(&circle.join("\n")));
    assert!(found.len() == 2 && found[0].contains("a/mod.rs:3 imports room/src/a/one.rs"), "{found:?}");
    let through_a_glob = [
        file("lib", "pub use a::*;\n"),
        file("a", "pub use one::*;\n"),
        file("a/one", "use crate::b::three::g;\npub struct One;\n"),
        file("b", "mod three;\n"),
        file("b/three", "use crate::One;\n"),
    ];
    assert_eq!(circles(&through_a_glob, &mut Vec::new()).len(), 1);
    // A module and its children, and files of one folder, may know each other.
    let family = [
        file("a", "mod b;\nuse b::B;\n"),
        file("a/b", "use super::c::C;\n"),
        file("a/c", "use super::b::B;\n"),
    ];
    assert_eq!(circles(&family, &mut Vec::new()), [""; 0]);
}

#[test]
fn a_circle_is_found_over_a_folder_and_a_file_beside_it() {
    let file = |path: &str, text: &str| (format!("room/src/{path}.rs"), text.to_owned());
    let files = |head: &str, file_beside: &str| {
        [file("a/mod", head), file("a/ticket", "pub struct Ticket;\n"), file("input", file_beside)]
    };
    let (head, beside) = ("mod ticket;\nuse crate::input::Input;\n", "use crate::a::ticket::Ticket;\n");
    let lines = ["a/mod.rs:2 imports room/src/input.rs", "input.rs:1 imports room/src/a/ticket.rs"];
    let found = circles(&files(head, beside), &mut Vec::new());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(lines.iter().all(|line| found[0].contains(&format!("  room/src/{line}"))), "{found:?}");
    assert_eq!(circles(&files(head, ""), &mut Vec::new()), [""; 0]);
    assert_eq!(circles(&files("mod ticket;\n", beside), &mut Vec::new()), [""; 0]);
}

/// The circles of one crate's files, each as the lines that make it.
fn circles(files: &[(String, String)], edges: &mut Vec<(String, String)>) -> Vec<String> {
    let mut modules: BTreeMap<Module, &(String, String)> =
        files.iter().map(|file| (module(&file.0), file)).collect();
    let mut passed_on: BTreeMap<(Module, String), Module> = BTreeMap::new();
    let mut globs = Vec::new();
    for (of, (_, text)) in &modules {
        let (all, named) = self::passed_on(of, text).into_iter().partition(|((_, name), _)| name == "*");
        let all: Vec<((Module, String), Module)> = all;
        globs.extend(all.into_iter().map(|((of, _), from)| (of, from)));
        passed_on.extend::<Vec<_>>(named);
    }
    // Again, for those that pass on what is passed on in the same way.
    for (of, from) in globs.iter().cycle().take(3 * globs.len()) {
        let Some((_, text)) = modules.get(from) else { continue };
        let own = passed_on.range((from.clone(), String::new())..).take_while(|((of, _), _)| of == from);
        let names: Vec<String> = own.map(|((_, name), _)| name.clone()).chain(declared(text)).collect();
        for name in names {
            let path = from.iter().cloned().chain([name.clone()]).collect();
            passed_on.entry((of.clone(), name)).or_insert(path);
        }
    }
    modules.remove(&Module::new());
    let imports: BTreeMap<&Module, BTreeMap<&Module, usize>> = modules
        .iter()
        .map(|(of, (_, text))| {
            let named = paths(text).into_iter().rev();
            let named = named.filter_map(|(line, path)| {
                let target = origin(absolute(of, &path)?, &modules, &passed_on)?;
                (target != of).then_some((target, line))
            });
            (of, named.collect())
        })
        .collect();
    for (from, targets) in &imports {
        edges.extend(targets.keys().map(|to| (modules[*from].0.clone(), modules[*to].0.clone())));
    }
    let mut found = BTreeMap::new();
    for (from, targets) in &imports {
        let is_family = |to: &Module| to.starts_with(from) || from.starts_with(to);
        for to in targets.keys().filter(|to| !is_family(to) && is_other_folder(from, to, &modules)) {
            let Some(circle) = way(*to, *from, &imports) else { continue };
            let members: BTreeSet<&Module> = circle.iter().copied().collect();
            found.entry(members).or_insert(circle);
        }
    }
    let path = |module: &Module| modules[module].0.as_str();
    let line = |a: &Module, b: &Module| format!("  {}:{} imports {}", path(a), imports[a][b], path(b));
    let shown = found.into_values().map(|circle| {
        let pairs = circle.iter().zip(circle.iter().cycle().skip(1));
        pairs.map(|(a, b)| line(a, b)).collect::<Vec<_>>().join("\n")
    });
    let shown: Vec<String> = shown.collect();
    // One of files is one of their folders too, and told by its files.
    if shown.is_empty() { folder_circles(&imports, line) } else { shown }
}

/// What one place imports from others, with one of the imports that show it.
type Targets<'a> = BTreeMap<&'a [String], (&'a Module, &'a Module)>;

/// The circles among a folder and what lies beside it, each as a line for every import from one to the next.
fn folder_circles(
    imports: &BTreeMap<&Module, BTreeMap<&Module, usize>>,
    line: impl Fn(&Module, &Module) -> String,
) -> Vec<String> {
    let depth = imports.keys().map(|module| module.len()).max().unwrap_or_default();
    let mut found = BTreeMap::new();
    for parent in 0..depth {
        // Each as the way to it from the root, with one of the imports that lead from one to the other.
        let mut level = BTreeMap::<&[String], Targets<'_>>::new();
        for (from, targets) in imports {
            level.entry(&from[..from.len().min(parent + 1)]).or_default();
            for to in targets.keys().filter(|to| to.len().min(from.len()) > parent) {
                let (a, b) = (&from[..=parent], &to[..=parent]);
                if a[..parent] == b[..parent] && a != b {
                    level.entry(a).or_default().entry(b).or_insert((from, to));
                }
            }
        }
        let is_folder =
            |of: &[String]| imports.keys().any(|other| other.len() > of.len() && other.starts_with(of));
        for (from, targets) in &level {
            for to in targets.keys().filter(|to| is_folder(from) || is_folder(to)) {
                let Some(circle) = way(*to, *from, &level) else { continue };
                let pairs = circle.iter().zip(circle.iter().cycle().skip(1));
                let imports = pairs.map(|(a, b)| level[a][b]);
                let lines: Vec<String> = imports.map(|(a, b)| line(a, b)).collect();
                found.entry(circle.into_iter().collect::<BTreeSet<_>>()).or_insert(lines.join("\n"));
            }
        }
    }
    found.into_values().collect()
}

fn module(path: &str) -> Module {
    let (_, within) = path.split_once("/src/").unwrap();
    let within = within.trim_end_matches(".rs").trim_end_matches("/mod");
    within.split('/').filter(|name| !["lib", "main", "mod"].contains(name)).map(str::to_owned).collect()
}

fn is_other_folder(a: &Module, b: &Module, modules: &BTreeMap<Module, &(String, String)>) -> bool {
    // A module that has others below it is the head of its folder.
    let has_others =
        |of: &Module| modules.keys().any(|other| other.len() > of.len() && other.starts_with(of));
    let folder = |of: &Module| if has_others(of) { of.clone() } else { of[..of.len() - 1].to_vec() };
    folder(a) != folder(b)
}

/// The shortest way along imports, both ends with it.
fn way<M: Copy + Ord, T>(from: M, to: M, imports: &BTreeMap<M, BTreeMap<M, T>>) -> Option<Vec<M>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let last = way[way.len() - 1];
        if last == to {
            return Some(way);
        }
        for next in imports[&last].keys().filter(|next| seen.insert(**next)) {
            ways.push_back(way.iter().copied().chain([*next]).collect());
        }
    }
    None
}

/// The file that a path leads into, with names that are passed on followed to where they come from.
fn origin<'a>(
    mut path: Module,
    modules: &'a BTreeMap<Module, &(String, String)>,
    passed_on: &BTreeMap<(Module, String), Module>,
) -> Option<&'a Module> {
    // More steps than names are passed on by: a path that goes round in itself ends too.
    for _ in 0..8 {
        // 0 is the root.
        let length =
            (1..=path.len()).rev().find(|length| modules.contains_key(&path[..*length])).unwrap_or(0);
        let further =
            path.get(length).and_then(|name| passed_on.get(&(path[..length].to_vec(), name.clone())));
        match further {
            Some(further) => path.splice(..=length, further.iter().cloned()),
            None => return modules.get_key_value(&path[..length]).map(|(module, _)| module),
        };
    }
    None
}

/// The items that a file declares for others.
fn declared(text: &str) -> Vec<String> {
    let items = text.lines().filter(|line| line.starts_with("pub"));
    let names = items.filter_map(|line| {
        let mut words = line.split(|c: char| !is_name(c)).skip_while(|word| !ITEMS.contains(word)).skip(1);
        words.find(|word| !word.is_empty() && !ITEMS.contains(word))
    });
    names.map(str::to_owned).collect()
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];

/// What a module passes on of others: (module, name) and what it is there. The name of all of it is `*`.
fn passed_on(of: &Module, text: &str) -> Vec<((Module, String), Module)> {
    let mut found = Vec::new();
    for (start, word) in text.match_indices(" use ").filter(|(start, _)| is_public(&text[..*start])) {
        let mut names = Vec::new();
        tree(&text[start + word.len()..], &[], &mut names);
        let names = names.into_iter().filter_map(|(path, name)| Some((absolute(of, &path)?, name)));
        found.extend(names.map(|(path, name)| ((of.clone(), name), path)));
    }
    found
}

fn is_public(before: &str) -> bool {
    before.rsplit('\n').next().unwrap().trim_start().starts_with("pub")
}

/// The paths that a file names, with the lines where they begin: those from `crate`, `super` or `self`, and
/// those from what these bring into the file or from its own children.
fn paths(text: &str) -> Vec<(usize, Module)> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
    let code = code.join("\n");
    let mut known: BTreeMap<String, Module> =
        ["crate", "super", "self"].map(|word| (word.to_owned(), vec![word.to_owned()])).into();
    let children = code.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    known.extend(children.map(|name| (name.to_owned(), vec!["self".to_owned(), name.to_owned()])));
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let start = code[..at].rfind(|c: char| !is_name(c)).map_or(0, |before| before + 1);
        let Some(from) = known.get(&code[start..at]).filter(|_| !code[..start].ends_with("::")) else {
            continue;
        };
        let mut names = Vec::new();
        tree(&code[at + 2..], from, &mut names);
        let line = code[..start].split('\n').count();
        found.extend(names.iter().map(|(path, _)| (line, path.clone())));
        known.extend(names.into_iter().map(|(path, name)| (name, path)));
    }
    found
}

/// Takes a tree of names off a text, each as the path below `from` and the name that it gets here.
fn tree<'a>(text: &'a str, from: &[String], found: &mut Vec<(Module, String)>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.is_empty() && !rest.trim_start().starts_with('}') {
            rest = tree(rest, from, found).trim_start().trim_start_matches(',');
        }
        return rest.trim_start().get(1..).unwrap_or_default();
    }
    let name = &text[..text.find(|c| !is_name(c)).unwrap_or(text.len())];
    text = &text[name.len()..];
    let mut path = from.to_vec();
    path.extend(Some(name.to_owned()).filter(|name| !name.is_empty() && (name != "self" || from.is_empty())));
    if let Some(rest) = text.strip_prefix("::") {
        return tree(rest, &path, found);
    }
    let alias =
        text.strip_prefix(" as ").map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]);
    text = alias.map_or(text, |alias| &text[" as ".len() + alias.len()..]);
    let all = text.starts_with('*').then_some("*");
    let known_as = all.or(alias).or(path.last().map(String::as_str)).unwrap_or_default().to_owned();
    found.push((path, known_as));
    text.strip_prefix('*').unwrap_or(text)
}

/// A path from its crate's root, where it begins with `crate`, `super`, `self` or a child.
fn absolute(of: &Module, path: &[String]) -> Option<Module> {
    let mut base = of.clone();
    for name in path {
        match name.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()?),
            "self" => {}
            name => base.push(name.to_owned()),
        }
    }
    Some(base)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
