//! A word to who sets a value for the whole fleet that groups say otherwise for some hosts (R6.4).

use fallow_proto::operator::v1::{Group, ListGroupsRequest};

use super::connect::Client;
use super::warn;

/// Says which groups prevail over the fleet-wide values of these keys, such as `preferences.cpu_fraction`.
/// The change is made by then: where the groups cannot be had, nothing is said.
pub(super) async fn tell(client: &mut Client, keys: &[String]) {
    let Ok(reply) = client.list_groups(ListGroupsRequest {}).await else { return };
    if let Some(text) = overruled(&reply.into_inner().groups, keys) {
        warn(&text);
    }
}

fn overruled(groups: &[Group], keys: &[String]) -> Option<String> {
    let says = |group: &&Group| group.hosts > 0 && group.values.iter().any(|value| keys.contains(&value.key));
    let names: Vec<&str> = groups.iter().filter(says).map(|group| group.name.as_str()).collect();
    match names.as_slice() {
        [] => None,
        names => Some(format!(
            "hosts of these groups keep what the group says: {}; `fallow groups` lists what that is",
            names.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_proto::operator::v1::SaidValue;

    #[test]
    fn r6_4_groups_that_say_the_same_value_and_have_hosts_are_named() {
        let group = |name: &str, hosts, key: &str| Group {
            name: name.into(),
            hosts,
            values: vec![SaidValue { key: key.into(), value: "1".into() }],
            ..Group::default()
        };
        let groups = [
            group("a", 2, "preferences.suspended"),
            group("b", 0, "projects.x"),
            group("c", 1, "projects.x"),
        ];
        let said = |key: &str| overruled(&groups, &[key.to_owned()]).unwrap_or_default();
        assert!(
            said("preferences.suspended").contains("says: a;") && said("projects.x").contains("says: c;")
        );
        assert_eq!(said("projects.y"), "");
    }
}
