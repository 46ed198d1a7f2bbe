//! Where a path of `--vary` leads in a scenario file.

use fallow_config::suggest;
use toml::{Table, Value};

use super::super::text::sections::APPLICATION_KEYS;
use super::VaryError;

/// Sets what `path` names to `value`, in all places that it names. Whether the last key exists is for the
/// reader to say.
pub(crate) fn set(file: &mut Table, path: &str, value: &Value) -> Result<(), VaryError> {
    let parts: Vec<&str> = path.split('.').map(str::trim).collect();
    match parts.as_slice() {
        [key @ ("name" | "duration" | "hosts")] => {
            file.insert((*key).to_owned(), value.clone());
            Ok(())
        }
        ["host", "coprocessor", kind, keys @ ..] if !keys.is_empty() => {
            let host = file.get_mut("host").and_then(Value::as_table_mut);
            let list = host.and_then(|host| host.get_mut("coprocessor")).and_then(Value::as_array_mut);
            for coprocessor in named(list, "type", kind, "a coprocessor of the host")? {
                insert(coprocessor, keys, value);
            }
            Ok(())
        }
        [part @ ("host" | "client"), keys @ ..] if !keys.is_empty() => {
            if let Some(part) = file.get_mut(*part).and_then(Value::as_table_mut) {
                insert(part, keys, value);
            }
            Ok(())
        }
        ["project", name, keys @ ..] if !keys.is_empty() => {
            let list = file.get_mut("project").and_then(Value::as_array_mut);
            for project in named(list, "name", name, "a project of the scenario")? {
                set_in_project(project, keys, value)?;
            }
            Ok(())
        }
        ["outage", name, keys @ ..] if !keys.is_empty() => {
            let list = file.get_mut("outage").and_then(Value::as_array_mut);
            for outage in named(list, "name", name, "an outage of the scenario")? {
                insert(outage, keys, value);
            }
            Ok(())
        }
        [first, rest @ ..] => {
            let roots = ["name", "duration", "hosts", "host", "client", "project", "outage"];
            // What has keys of its own stands last.
            let likely = if rest.is_empty() { &roots[..] } else { &roots[3..] };
            let problem = match roots.contains(first) {
                true => format!("{path} is no key"),
                false => format!("there is no {first:?} in a scenario"),
            };
            let expected = "duration, hosts, host.KEY, host.coprocessor.KIND.KEY, client.KEY, project.NAME.KEY, \
                            project.NAME.application.NAME.KEY or outage.NAME.KEY";
            let near = suggest(first, likely.iter().copied()).filter(|near| near != first);
            Err(VaryError::new(path, problem, expected).suggesting(near.map(ToOwned::to_owned)))
        }
        [] => Err(VaryError::new(path, "there is no path", "a key of the scenario")),
    }
}

fn set_in_project(project: &mut Table, keys: &[&str], value: &Value) -> Result<(), VaryError> {
    let listed = project.contains_key("application");
    match keys {
        ["application", name, keys @ ..] if !keys.is_empty() => {
            if !listed {
                // The project is its own only application.
                let own = project.get("name").and_then(Value::as_str).unwrap_or_default();
                if *name != own && *name != "*" {
                    let problem = format!("{name:?} is not an application of the project");
                    return Err(VaryError::new("", problem, format!("{own} or *")));
                }
                insert(project, keys, value);
                return Ok(());
            }
            let list = project.get_mut("application").and_then(Value::as_array_mut);
            for application in named(list, "name", name, "an application of the project")? {
                insert(application, keys, value);
            }
            Ok(())
        }
        [key, ..] if listed && APPLICATION_KEYS.contains(key) => {
            let list = project.get_mut("application").and_then(Value::as_array_mut);
            let names = list.as_ref().map(|list| names(list, "name")).unwrap_or_default();
            match named(list, "name", "*", "an application")?.as_mut_slice() {
                [only] => insert(only, keys, value),
                _ => {
                    let problem = format!("{key} is a key of applications, and the project has several");
                    let expected = format!("application.NAME.{key} with one of {names}, or *");
                    return Err(VaryError::new("", problem, expected));
                }
            }
            Ok(())
        }
        keys => {
            insert(project, keys, value);
            Ok(())
        }
    }
}

/// The tables of a list whose `key` is `name`, or all of them for `*`; at least one.
fn named<'t>(
    list: Option<&'t mut Vec<Value>>,
    key: &str,
    name: &str,
    what: &str,
) -> Result<Vec<&'t mut Table>, VaryError> {
    let Some(list) = list else {
        return Err(VaryError::new("", format!("{name:?} is not {what}"), "one: there is none at all"));
    };
    let there: Vec<String> =
        list.iter().filter_map(|table| Some(table.get(key)?.as_str()?.to_owned())).collect();
    let expected = format!("{} or *", names(list, key));
    let tables: Vec<&mut Table> = list
        .iter_mut()
        .filter(|table| name == "*" || table.get(key).and_then(Value::as_str) == Some(name))
        .filter_map(Value::as_table_mut)
        .collect();
    if tables.is_empty() {
        let near = suggest(name, there.iter().map(String::as_str)).map(ToOwned::to_owned);
        return Err(VaryError::new("", format!("{name:?} is not {what}"), expected).suggesting(near));
    }
    Ok(tables)
}

/// The names in a list, as many as fit a message.
fn names(list: &[Value], key: &str) -> String {
    let there = list.iter().filter_map(|table| table.get(key)?.as_str());
    let mut text = there.take(20).collect::<Vec<_>>().join(", ");
    if list.len() > 20 {
        text += ", ...";
    }
    text
}

/// Sets a key, and makes the tables that lead to it.
fn insert(table: &mut Table, keys: &[&str], value: &Value) {
    match keys {
        [] => {}
        [key] => {
            // An availability is recorded, drawn, or by hours: one takes the place of the others.
            let others: &[&str] = match *key {
                "trace" => &["fraction", "mean", "days", "hours", "jitter", "absent"],
                "fraction" | "mean" => &["trace", "days", "hours", "jitter", "absent"],
                "days" | "hours" | "jitter" | "absent" => &["trace", "fraction", "mean"],
                _ => &[],
            };
            for other in others {
                table.remove(*other);
            }
            table.insert((*key).to_owned(), value.clone());
        }
        [key, rest @ ..] => {
            let inner = table.entry((*key).to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            if let Some(inner) = inner.as_table_mut() {
                insert(inner, rest, value);
            }
        }
    }
}
