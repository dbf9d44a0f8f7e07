//! Groups of initiators that see the same disks. Lunette has no object for them: each member has the disks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Map;

use super::Done;
use crate::document::{Document, Group, Target};
use crate::form::Form;
use crate::names;
use crate::refusal::Refusal;

/// `PUT hostgroup/{target}/{group}`: adds members and disks, or takes some out (`action=remove`).
pub(crate) fn change_group(document: &mut Document, target: &str, group: &str, form: &Form) -> Done {
    let name = names::plain(group)?;
    let target = document.target_mut(target)?;
    let old = target.groups.get(&name).cloned().unwrap_or_default();
    let members: BTreeSet<String> = form.list("members").into_iter().map(str::to_ascii_lowercase).collect();
    let disks = form.list("disks");
    let mut new = old.clone();
    match form.get("action").unwrap_or("add").to_ascii_lowercase().as_str() {
        "add" => {
            let added: Vec<String> = members.into_iter().filter(|one| !old.members.contains(one)).collect();
            check_members(target, &added)?;
            new.members.extend(added);
            new.disks.extend(disks.into_iter().map(|disk| (disk.to_owned(), Map::new())));
        }
        "remove" => {
            new.members.retain(|one| !members.contains(one));
            new.disks.retain(|disk, _| !disks.contains(&disk.as_str()));
        }
        _ => return Err(Refusal { status: 405, message: "Invalid hostgroup action specified".into() }),
    }
    let unknown: Vec<&str> =
        new.disks.keys().filter(|disk| !target.disks.contains_key(*disk)).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(Refusal::bad(format!("disk(s) {} do not exist in the target", unknown.join(","))));
    }
    leave(target, old.members.iter().filter(|one| !new.members.contains(one)));
    join(target, &name, &new);
    target.groups.insert(name, new);
    Ok("hostgroup create/update successful")
}

/// `DELETE hostgroup/{target}/{group}`. Its members keep the disks, as with ceph-iscsi.
pub(crate) fn delete_group(document: &mut Document, target: &str, group: &str) -> Done {
    let target = document.target_mut(target)?;
    let Some(Group { members, .. }) = target.groups.remove(group) else {
        return Err(Refusal::missing(format!("Group name '{group}' not found")));
    };
    leave(target, members.iter());
    Ok("Group definition deleted")
}

/// Checks that clients can become members.
fn check_members(target: &Target, added: &[String]) -> Result<(), Refusal> {
    for name in added {
        let client = target.clients.get(name);
        let client = client.ok_or_else(|| Refusal::bad(format!("Group member ({name}) doesn't exist")))?;
        if !client.group_name.is_empty() {
            return Err(Refusal::bad(format!(
                "Client already assigned to {} - a client can only belong to one host group",
                client.group_name
            )));
        }
        if !client.luns.is_empty() {
            return Err(Refusal::bad(format!(
                "Client '{name}' already has luns. Only clients without prior lun maps can be added to a group"
            )));
        }
    }
    Ok(())
}

fn leave<'a>(target: &mut Target, members: impl Iterator<Item = &'a String>) {
    for name in members {
        if let Some(client) = target.clients.get_mut(name) {
            client.group_name.clear();
        }
    }
}

/// Gives members the disks of their group.
fn join(target: &mut Target, name: &str, group: &Group) {
    let places = group.disks.keys().filter_map(|disk| Some((disk.clone(), *target.disks.get(disk)?)));
    let luns: BTreeMap<_, _> = places.collect();
    for member in &group.members {
        if let Some(client) = target.clients.get_mut(member) {
            name.clone_into(&mut client.group_name);
            client.luns.clone_from(&luns);
        }
    }
}
