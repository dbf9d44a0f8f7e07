//! Initiators of a target.

use super::Done;
use crate::document::{Client, Document};
use crate::form::Form;
use crate::names;
use crate::refusal::Refusal;

/// `PUT client/{target}/{client}`.
pub(crate) fn new_client(document: &mut Document, target: &str, client: &str) -> Done {
    let name = names::iqn(client)?;
    let target = document.target_mut(target)?;
    if target.clients.contains_key(&name) {
        return Err(Refusal::bad(format!("A client with the name '{name}' is already defined")));
    }
    if target.portals.is_empty() {
        return Err(Refusal::bad("Clients can not be defined until a gateway has been defined"));
    }
    if !target.acl_enabled {
        return Err(Refusal::bad("Clients can not be defined while ACL authentication is disabled"));
    }
    target.clients.insert(name, Client::default());
    Ok("client create/update successful")
}

/// `DELETE client/{target}/{client}`.
pub(crate) fn delete_client(document: &mut Document, target: &str, client: &str) -> Done {
    let target = document.target_mut(target)?;
    let Some(found) = target.clients.get(client) else {
        return Err(Refusal::bad(format!("{client} is not defined yet - nothing to delete")));
    };
    if !found.group_name.is_empty() {
        let group = &found.group_name;
        return Err(Refusal::bad(format!("Unable to delete '{client}' - it belongs to group {group}")));
    }
    target.clients.remove(client);
    Ok("client delete successful")
}

/// `PUT clientauth/{target}/{client}`.
pub(crate) fn auth_client(document: &mut Document, target: &str, client: &str, form: &Form) -> Done {
    client_mut(document, target, client)?.auth = names::auth(form)?;
    Ok("client auth successful")
}

/// `PUT` and `DELETE clientlun/{target}/{client}`: whether an initiator sees a disk of the target.
pub(crate) fn map_client(document: &mut Document, target: &str, client: &str, form: &Form, is_seen: bool) -> Done {
    let id = form.need("disk")?;
    let place = document.target(target)?.disks.get(id).copied();
    let found = client_mut(document, target, client)?;
    if !found.group_name.is_empty() {
        let group = &found.group_name;
        return Err(Refusal::bad(format!("Unable to manage disks for '{client}' - it belongs to group {group}")));
    }
    match (is_seen, place) {
        (true, Some(place)) => _ = found.luns.insert(id.to_owned(), place),
        (true, None) => return Err(Refusal::bad(format!("Disk {id} is not defined in target {target}"))),
        (false, _) if found.luns.remove(id).is_some() => {}
        (false, _) => return Err(Refusal::bad("disk not mapped to client")),
    }
    Ok("client masking update successful")
}

fn client_mut<'a>(document: &'a mut Document, target: &str, client: &str) -> Result<&'a mut Client, Refusal> {
    let missing = || Refusal::bad(format!("Client '{client}' does not exist"));
    document.target_mut(target)?.clients.get_mut(client).ok_or_else(missing)
}
