//! Targets and what is below them: portal groups, logical units, ACLs and portals.

use super::backstores;
use crate::failure::Failure;
use crate::model::{CONFIGFS, Mapped, wwn};
use crate::node::Node;
use crate::portal::{self, DEFAULT_PORT};
use crate::shell::{Call, is};

/// The portal that LIO gives to each target.
const DEFAULT_PORTAL: &str = "0.0.0.0:3260";

pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Failure> {
    let [name] = call.line.bind(["wwn"], 0)?;
    let iqn = match name {
        Some(name) => wwn(name)?,
        None => generated(&call.world.new_serial()),
    };
    call.model.add_target(&iqn)?;
    call.say(format!("Created target {iqn}."));
    call.say("Created TPG 1.");
    add_default_portal(call);
    call.made(Node::Tpg(iqn));
    Ok(())
}

/// A name as rtslib makes one, with what tells one serial number from another.
fn generated(serial: &str) -> String {
    let digits: String = serial.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    format!("iqn.2003-01.org.linux-iscsi.lunette.x8664:sn.{digits}")
}

/// A target is reached through all portals of the server, so it needs none of its own where there is one.
fn add_default_portal(call: &mut Call<'_>) {
    if !call.model.prefers("auto_add_default_portal") {
        return;
    }
    if call.model.portals.is_empty() {
        portal::add(&mut call.model.portals, DEFAULT_PORTAL);
    }
    if call.model.portals.contains_key(DEFAULT_PORTAL) {
        call.say("Global pref auto_add_default_portal=true");
        call.say("Created default portal listening on all IPs (0.0.0.0), port 3260.");
    } else {
        let all: Vec<&str> = call.model.portals.keys().map(String::as_str).collect();
        let all = all.join(", ");
        call.say(format!("Default portal not created, the target has the portals of the server: {all}."));
    }
}

pub(crate) fn delete(call: &mut Call<'_>) -> Result<(), Failure> {
    let [name] = call.line.bind(["wwn"], 1)?;
    let name = name.unwrap_or_default();
    // A target of the API may have a name that LIO would not give.
    let iqn = if call.model.targets.contains_key(name) { name.into() } else { wwn(name)? };
    call.model.remove_target(&iqn)?;
    call.say(format!("Deleted Target {iqn}."));
    Ok(())
}

pub(crate) fn create_tpg(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [tag] = call.line.bind(["tag"], 0)?;
    match tag.map_or(Ok(0), number_of_tpg)? {
        1 => Err(Failure::done_already("This TPG already exists in configFS")),
        _ => Err(Failure::new(format!("{iqn} has the TPG 1, and a target of Lunette has no other"))),
    }
}

pub(crate) fn delete_tpg(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [tag] = call.line.bind(["tag"], 1)?;
    match number_of_tpg(tag.unwrap_or_default())? {
        1 => Err(Failure::new(format!("the TPG 1 of {iqn} goes with its target: /iscsi delete {iqn}"))),
        tag => Err(Failure::done_already(format!("No such TPG in configfs: {tag}"))),
    }
}

fn number_of_tpg(tag: &str) -> Result<u16, Failure> {
    tag.trim_start_matches("tpg").parse().map_err(|_| Failure::new("Tag argument must be a number."))
}

pub(crate) fn enable(call: &mut Call<'_>) -> Result<(), Failure> {
    call.line.bind([], 0)?;
    call.say("The TPGT is already enabled.");
    Ok(())
}

pub(crate) fn disable(call: &mut Call<'_>) -> Result<(), Failure> {
    call.line.bind([], 0)?;
    Err(Failure::new(
        "Cannot change enable state: a target of Lunette is enabled while it is there; remove its ACLs, or set generate_node_acls=0",
    ))
}

pub(crate) fn create_lun(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [object, lun, add] = call.line.bind(["storage_object", "lun", "add_mapped_luns"], 1)?;
    let add_mapped_luns = is(add, call.model.prefers("auto_add_mapped_luns"))?;
    let wanted = lun.map(number_of_lun).transpose()?;
    let object = backstores::at(call, object.unwrap_or_default())?;
    let before = call.model.target(iqn)?.clone();
    let lun = call.model.add_lun(iqn, &object, wanted)?;
    call.say(format!("Created LUN {lun}."));
    for (initiator, acl) in &before.access.acls {
        // Initiators that see all see the new one, too.
        let all = before.mapped(acl);
        let target = call.model.target_mut(iqn)?;
        match (&acl.mapped, add_mapped_luns) {
            (None, false) => target.acl_mut(initiator)?.mapped = Some(all),
            (None, true) | (Some(_), false) => {}
            (Some(_), true) => {
                let first = wanted.unwrap_or(0);
                let free =
                    std::iter::once(first).chain(0..=u16::from(u8::MAX)).find(|number| !all.contains_key(number));
                let Some(number) = free else {
                    call.say(format!("Cannot map new lun {lun} into ACL {initiator}"));
                    continue;
                };
                target.map(initiator, number, Mapped { lun, write_protect: false })?;
                call.say(format!("Created LUN {lun}->{number} mapping in node ACL {initiator}"));
            }
        }
    }
    call.made(Node::Lun(iqn.into(), lun));
    Ok(())
}

pub(crate) fn delete_lun(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [lun] = call.line.bind(["lun"], 1)?;
    let number = number_of_lun(lun.unwrap_or_default())?;
    call.model.remove_lun(iqn, number)?;
    call.say(format!("Deleted LUN {number}."));
    Ok(())
}

/// The number of `lun3` or `3`.
fn number_of_lun(text: &str) -> Result<u16, Failure> {
    let digits = text.strip_prefix("lun").or_else(|| text.strip_prefix("LUN")).unwrap_or(text);
    digits.parse().map_err(|_| Failure::new("Invalid LUN"))
}

pub(crate) fn create_acl(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [name, add] = call.line.bind(["wwn", "add_mapped_luns"], 1)?;
    let initiator = wwn(name.unwrap_or_default())?;
    let add_mapped_luns = is(add, call.model.prefers("auto_add_mapped_luns"))?;
    let target = call.model.target_mut(iqn)?;
    target.add_acl(&initiator)?;
    let mut lines = vec![format!("Created Node ACL for {initiator}")];
    if add_mapped_luns {
        for lun in target.luns.keys().copied().collect::<Vec<_>>() {
            target.map(&initiator, lun, Mapped { lun, write_protect: false })?;
            lines.push(format!("Created mapped LUN {lun}."));
        }
    }
    call.reply.lines.extend(lines);
    call.made(Node::Acl(iqn.into(), initiator));
    Ok(())
}

pub(crate) fn delete_acl(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [name] = call.line.bind(["wwn"], 1)?;
    let initiator = name.unwrap_or_default().to_lowercase();
    let initiator = wwn(&initiator).unwrap_or(initiator);
    let target = call.model.target_mut(iqn)?;
    if target.remove_acl(&initiator).is_err() {
        let path = format!("{CONFIGFS}/{iqn}/tpgt_1/acls/{initiator}");
        return Err(Failure::done_already(format!("No such NodeACL in configfs: {path}")));
    }
    call.say(format!("Deleted Node ACL {initiator}."));
    Ok(())
}

pub(crate) fn map(call: &mut Call<'_>, iqn: &str, initiator: &str) -> Result<(), Failure> {
    let [number, lun, protect] = call.line.bind(["mapped_lun", "tpg_lun_or_backstore", "write_protect"], 2)?;
    let number: u16 = number.unwrap_or_default().parse().map_err(|_| Failure::new("mapped_lun must be an integer"))?;
    let write_protect = match protect {
        Some("1") => true,
        Some("0") => false,
        other => is(other, false)?,
    };
    let lun = lun.unwrap_or_default();
    let lun = match number_of_lun(lun) {
        Ok(lun) => lun,
        Err(_) => lun_of(call, iqn, lun)?,
    };
    call.model.target_mut(iqn)?.map(initiator, number, Mapped { lun, write_protect })?;
    call.say(format!("Created Mapped LUN {number}."));
    call.made(Node::Mapped(iqn.into(), initiator.into(), number));
    Ok(())
}

/// The logical unit of a storage object, which is made when there is none.
fn lun_of(call: &mut Call<'_>, iqn: &str, path: &str) -> Result<u16, Failure> {
    let object = backstores::at(call, path).map_err(|_| Failure::new("LUN, storage object, or path not valid"))?;
    let known = call.model.target(iqn)?.luns.iter().find(|(_, lun)| lun.object == object).map(|(number, _)| *number);
    if let Some(number) = known {
        return Ok(number);
    }
    let number = call.model.add_lun(iqn, &object, None)?;
    call.say(format!("Created LUN {number}."));
    Ok(number)
}

pub(crate) fn unmap(call: &mut Call<'_>, iqn: &str, initiator: &str) -> Result<(), Failure> {
    let [number] = call.line.bind(["mapped_lun"], 1)?;
    let text = number.unwrap_or_default();
    let number = text.strip_prefix("mapped_lun").unwrap_or(text).parse();
    let number = number.map_err(|_| Failure::new("The mapped_lun parameter must be an integer"))?;
    call.model.target_mut(iqn)?.unmap(initiator, number)?;
    call.say(format!("Deleted Mapped LUN {number}."));
    Ok(())
}

pub(crate) fn create_portal(call: &mut Call<'_>, _iqn: &str) -> Result<(), Failure> {
    let [ip, port] = call.line.bind(["ip_address", "ip_port"], 0)?;
    let (ip, port) = (ip.unwrap_or("0.0.0.0").to_owned(), port.map_or(Ok(DEFAULT_PORT), number_of_port)?);
    if port == DEFAULT_PORT {
        call.say(format!("Using default IP port {port}"));
    }
    if ip == "0.0.0.0" {
        call.say("Binding to INADDR_ANY (0.0.0.0)");
    }
    let address = portal::address(&ip, port)?;
    portal::add(&mut call.model.portals, &address);
    call.say(format!("Created network portal {ip}:{port}."));
    Ok(())
}

pub(crate) fn delete_portal(call: &mut Call<'_>, iqn: &str) -> Result<(), Failure> {
    let [ip, port] = call.line.bind(["ip_address", "ip_port"], 2)?;
    let (ip, port) = (ip.unwrap_or_default().to_owned(), number_of_port(port.unwrap_or_default())?);
    let address = portal::address(&ip, port)?;
    if !call.model.portals.contains_key(&address) {
        return Err(Failure::done_already(format!(
            "No such NetworkPortal in configfs: {CONFIGFS}/{iqn}/tpgt_1/np/{address}"
        )));
    }
    let others = call.model.targets.keys().filter(|name| *name != iqn).count();
    if others > 0 {
        return Err(Failure::new(format!(
            "{address} stays: a portal of Lunette leads to all targets, and {others} others have it; lunette ctl rm portals/{address} removes it"
        )));
    }
    call.model.portals.remove(&address);
    call.say(format!("Deleted network portal {ip}:{port}"));
    Ok(())
}

fn number_of_port(text: &str) -> Result<u16, Failure> {
    text.parse().map_err(|_| Failure::new(format!("Syntax error, '{text}' is not a NUMBER.")))
}

pub(crate) fn enable_adapter(call: &mut Call<'_>) -> Result<(), Failure> {
    let [wanted] = call.line.bind(["boolean"], 1)?;
    if is(wanted, false)? {
        return Err(Failure::new("Lunette has neither iSER nor offload"));
    }
    let what = call.line.command.trim_start_matches("enable_").replace("iser", "iSER");
    call.say(format!("{what} enable now: False"));
    Ok(())
}
