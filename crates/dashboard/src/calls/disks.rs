//! Images, and their places in targets.

use super::Done;
use crate::document::{Controls, Disk, Document, Place};
use crate::form::Form;
use crate::limits::{MAX_LUNS, MAX_SERIAL_BYTES};
use crate::refusal::Refusal;
use crate::settings::{self, BACKSTORE};

/// `PUT disk/{pool}/{image}` with `mode=create`: an image that is there may get a place in a target. `wwn` is for a
/// disk without one of the client's.
pub(crate) fn new_disk(document: &mut Document, pool: &str, image: &str, form: &Form, wwn: &str) -> Done {
    let id = format!("{pool}/{image}");
    let backstore = form.get("backstore").unwrap_or(BACKSTORE);
    if backstore != BACKSTORE {
        return Err(Refusal::bad(format!("'{backstore}' is not a supported backstore - it is '{BACKSTORE}'")));
    }
    if document.disks.contains_key(&id) {
        return Err(Refusal::bad(format!("Disk {id} is already defined")));
    }
    if !matches!(form.get("count"), None | Some("1")) {
        return Err(Refusal::bad("count: one disk is defined at a time"));
    }
    settings::control_disk(form.get("controls"))?;
    let wwn = form.get("wwn").filter(|wwn| !wwn.is_empty()).unwrap_or(wwn).to_owned();
    if wwn.len() > MAX_SERIAL_BYTES || !wwn.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Refusal::bad(format!("wwn has at most {MAX_SERIAL_BYTES} letters and digits")));
    }
    if let Some((other, _)) = document.disks.iter().find(|(_, disk)| disk.wwn == wwn) {
        return Err(Refusal::bad(format!("Disk {other} has the wwn {wwn} already")));
    }
    let [pool, image, backstore] = [pool, image, backstore].map(str::to_owned);
    document.disks.insert(id, Disk { pool, image, backstore, wwn, controls: Controls::new() });
    Ok("disk create/update successful")
}

/// `PUT disk/{pool}/{image}` with `mode=reconfigure`.
pub(crate) fn reconfigure_disk(document: &mut Document, id: &str, form: &Form) -> Done {
    if !document.disks.contains_key(id) {
        return Err(Refusal::missing(format!("rbd image {id} not found")));
    }
    settings::control_disk(form.get("controls"))?;
    Ok("lun reconfigured: successful")
}

/// `DELETE disk/{pool}/{image}`. The image stays.
pub(crate) fn delete_disk(document: &mut Document, id: &str, form: &Form) -> Done {
    if !document.disks.contains_key(id) {
        return Err(Refusal::missing(format!("rbd image {id} not found")));
    }
    if form.text("preserve_image") != "true" {
        return Err(Refusal::bad(format!(
            "Failed to remove the LUN - images are not removed here; send preserve_image=true, then: rbd rm {id}"
        )));
    }
    if let Some((name, _)) = document.targets.iter().find(|(_, target)| target.disks.contains_key(id)) {
        return Err(Refusal::bad(format!("Failed to remove the LUN - Unable to delete {id} - allocated to {name}")));
    }
    document.disks.remove(id);
    Ok("disk map deletion successful")
}

/// `PUT targetlun/{target}`: the place of a disk, under the number of the form or the first free one.
pub(crate) fn add_lun(document: &mut Document, target: &str, form: &Form) -> Done {
    let id = form.need("disk")?;
    document.target(target)?;
    if !document.disks.contains_key(id) {
        return Err(Refusal::bad(format!("Disk {id} is not defined in the configuration")));
    }
    if let Some((name, _)) = document.targets.iter().find(|(_, target)| target.disks.contains_key(id)) {
        return Err(Refusal::bad(format!("Disk {id} cannot be used because it is already mapped on target {name}")));
    }
    let target = document.target_mut(target)?;
    if target.portals.is_empty() {
        return Err(Refusal::bad("at least 1 gateways must exist before disk mapping operations are permitted"));
    }
    let is_free = |number: &u16| target.disks.values().all(|place| place.lun_id != *number);
    let free = match form.get("lun_id") {
        None | Some("") => (0..MAX_LUNS).find(is_free),
        Some(text) => text.parse().ok().filter(|number| *number < MAX_LUNS && is_free(number)),
    };
    let none = || Refusal::bad(format!("Add target LUN mapping failed - lun_id is a free number below {MAX_LUNS}"));
    let lun_id = free.ok_or_else(none)?;
    target.disks.insert(id.to_owned(), Place { lun_id });
    Ok("Target LUN mapping updated successfully")
}

/// `DELETE targetlun/{target}`.
pub(crate) fn remove_lun(document: &mut Document, target: &str, form: &Form) -> Done {
    let id = form.need("disk")?;
    if !document.disks.contains_key(id) {
        return Err(Refusal::bad(format!("Disk {id} is not defined in the configuration")));
    }
    let name = target;
    let target = document.target_mut(name)?;
    if !target.disks.contains_key(id) {
        return Err(Refusal::bad(format!("Disk {id} is not defined in target {name}")));
    }
    if let Some((group, _)) = target.groups.iter().find(|(_, group)| group.disks.contains_key(id)) {
        return Err(Refusal::bad(format!("Disk {id} belongs to group {group}")));
    }
    if let Some((client, _)) = target.clients.iter().find(|(_, client)| client.luns.contains_key(id)) {
        return Err(Refusal::bad(format!(
            "Delete target LUN mapping failed - Unable to delete {id} - allocated to {client}"
        )));
    }
    target.disks.remove(id);
    Ok("Target LUN mapping updated successfully")
}
