//! `cinder-rtstool`: the program by which Cinder's helper `lioadm` makes targets.
//!
//! A target has one storage object of its own name, as its logical unit 0, and lets in initiators with an ACL and a
//! secret alone.

use crate::failure::Failure;
use crate::machine::Machine;
use crate::model::{Mapped, Model, ObjectName, Plugin, Secret, StorageObject, wwn};
use crate::portal::{self, DEFAULT_PORT};
use crate::saved::{self, Only};
use crate::shell::{Found, World};
use crate::targetcli::{complain, print};

const USAGE: &str = "\
Usage:
cinder-rtstool create [device] [name] [userid] [password] [iser_enabled] <initiator_iqn,iqn2,iqn3,...> [-a<IP1,IP2,...>] [-pPORT]
cinder-rtstool add-initiator [target_iqn] [userid] [password] [initiator_iqn]
cinder-rtstool delete-initiator [target_iqn] [initiator_iqn]
cinder-rtstool get-targets
cinder-rtstool delete [iqn]
cinder-rtstool verify
cinder-rtstool save [path_to_file]
cinder-rtstool restore [path_to_file]";

/// The portals of a target for which none are asked.
const DEFAULT_PORTALS: [&str; 2] = ["0.0.0.0", "::"];

/// A command with its arguments.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Create(Create<'a>),
    AddInitiator { target: &'a str, user: &'a str, password: &'a str, initiator: &'a str },
    DeleteInitiator { target: &'a str, initiator: &'a str },
    GetTargets,
    Delete(&'a str),
    Verify,
    Save(Option<&'a str>),
    Restore(Option<&'a str>),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Create<'a> {
    device: &'a str,
    name: &'a str,
    user: &'a str,
    password: &'a str,
    is_iser: bool,
    initiators: Vec<&'a str>,
    addresses: Vec<&'a str>,
    port: Option<u16>,
}

/// Runs the program. Returns its exit code.
pub(crate) fn main(arguments: &[String]) -> i32 {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(command) = parse(&arguments) else {
        print(&format!("{USAGE}\n"));
        return 1;
    };
    // Whether the program is there, and not whether the server is.
    if command == Command::Verify {
        return 0;
    }
    match Machine::new().and_then(|machine| run(&machine, &command)) {
        Ok(()) => 0,
        Err(failure) => {
            complain(&failure.to_string());
            1
        }
    }
}

fn parse<'a>(arguments: &[&'a str]) -> Option<Command<'a>> {
    Some(match arguments {
        ["create", device, name, user, password, iser, more @ ..] if more.len() <= 3 => {
            let create = Create { device, name, user, password, is_iser: *iser == "True", ..Create::default() };
            Command::Create(parse_create(create, more)?)
        }
        ["add-initiator", target, user, password, initiator, ..] => {
            Command::AddInitiator { target, user, password, initiator }
        }
        ["delete-initiator", target, initiator, ..] => Command::DeleteInitiator { target, initiator },
        ["get-targets", ..] => Command::GetTargets,
        ["delete", iqn, ..] => Command::Delete(iqn),
        ["verify", ..] => Command::Verify,
        ["save"] => Command::Save(None),
        ["save", file] => Command::Save(Some(file)),
        ["restore"] => Command::Restore(None),
        ["restore", file] => Command::Restore(Some(file)),
        _ => return None,
    })
}

fn parse_create<'a>(mut create: Create<'a>, more: &[&'a str]) -> Option<Create<'a>> {
    let parts = |list: &'a str| list.split(',').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>();
    for argument in more {
        if let Some(addresses) = argument.strip_prefix("-a") {
            create.addresses = Some(parts(addresses)).filter(|addresses| !addresses.is_empty())?;
        } else if let Some(port) = argument.strip_prefix("-p") {
            create.port = Some(port.parse().ok()?);
        } else {
            create.initiators = parts(argument);
        }
    }
    Some(create)
}

fn run(machine: &Machine, command: &Command<'_>) -> Result<(), Failure> {
    match command {
        Command::Create(wanted) => machine.change(|model, world| create(model, world, wanted)),
        Command::AddInitiator { target, user, password, initiator } => {
            machine.change(|model, _| add_initiator(model, target, (user, password), initiator))
        }
        Command::DeleteInitiator { target, initiator } => {
            if !machine.change(|model, _| delete_initiator(model, target, initiator))? {
                print(&format!("delete_initiator: {initiator} ACL not found. Continuing.\n"));
            }
            Ok(())
        }
        Command::GetTargets => {
            let names: Vec<String> = machine.change(|model, _| Ok(model.targets.keys().cloned().collect()))?;
            for name in names {
                print(&format!("{name}\n"));
            }
            Ok(())
        }
        Command::Delete(iqn) => machine.change(|model, _| {
            delete(model, iqn);
            Ok(())
        }),
        Command::Verify => Ok(()),
        Command::Save(file) => machine.change(|model, world| world.save(*file, model).map(drop)),
        Command::Restore(file) => machine.change(|model, world| restore(model, world, *file)),
    }
}

fn create(model: &mut Model, world: &dyn World, wanted: &Create<'_>) -> Result<(), Failure> {
    if model.objects.keys().any(|object| object.name == wanted.name) {
        return Ok(());
    }
    if wanted.is_iser {
        return Err(Failure::new("Error enabling iSER for NetworkPortal: Lunette has no RDMA"));
    }
    let device = wanted.device;
    let read_only = match world.look_at(device) {
        Found::BlockDevice(is_read_only) => is_read_only,
        Found::File(_) => false,
        Found::Nothing | Found::Other => {
            return Err(Failure::new(format!("Device {device} is not a TYPE_DISK block device")));
        }
    };
    let object = StorageObject {
        disk: device.into(),
        read_only,
        wwn: world.new_serial(),
        // The names of Cinder's storage objects have the same beginning, so they make no products.
        attributes: [("emulate_model_alias".into(), 0)].into(),
        is_kept: true,
        ..StorageObject::default()
    };
    let object_name = ObjectName { plugin: Plugin::Block, name: wanted.name.into() };
    model.add_object(object_name.clone(), object)?;
    let iqn = wwn(wanted.name)?;
    model.add_target(&iqn)?;
    model.target_mut(&iqn)?.access.attributes.insert("authentication".into(), 1);
    model.add_lun(&iqn, &object_name, None)?;
    for initiator in &wanted.initiators {
        add_initiator(model, &iqn, (wanted.user, wanted.password), initiator)?;
    }
    add_portals(model, wanted)
}

/// All portals of the server lead to the target. More are added where Cinder asks for others, or there are none.
fn add_portals(model: &mut Model, wanted: &Create<'_>) -> Result<(), Failure> {
    let port = wanted.port.unwrap_or(DEFAULT_PORT);
    let is_default = wanted.addresses.is_empty();
    if is_default && !model.portals.is_empty() && wanted.port.is_none() {
        return Ok(());
    }
    let addresses = if is_default { &DEFAULT_PORTALS[..1] } else { &wanted.addresses };
    for ip in addresses {
        let error = |_| {
            Failure::new(format!(
                "Error: creating NetworkPortal: ensure port {port} on ip {ip} is not in use by another service."
            ))
        };
        portal::add(&mut model.portals, &portal::address(ip, port).map_err(error)?);
    }
    Ok(())
}

fn add_initiator(
    model: &mut Model,
    target: &str,
    (user, password): (&str, &str),
    initiator: &str,
) -> Result<(), Failure> {
    let target = find(model, target)?;
    let initiator = wwn(initiator)?;
    if target.access.acls.contains_key(&initiator) {
        return Ok(());
    }
    target.add_acl(&initiator)?;
    target.map(&initiator, 0, Mapped { lun: 0, write_protect: false })?;
    let auth = &mut target.acl_mut(&initiator)?.auth;
    (auth.userid, auth.password) = (user.into(), Secret::new(password));
    Ok(())
}

/// Whether the initiator had an ACL.
fn delete_initiator(model: &mut Model, target: &str, initiator: &str) -> Result<bool, Failure> {
    let target = find(model, target)?;
    let initiator = initiator.to_lowercase();
    Ok(target.remove_acl(&wwn(&initiator).unwrap_or(initiator)).is_ok())
}

fn find<'a>(model: &'a mut Model, target: &str) -> Result<&'a mut crate::model::Target, Failure> {
    model.target_mut(target).map_err(|_| Failure::new(format!("Could not find target {target}")))
}

fn delete(model: &mut Model, iqn: &str) {
    // What is not there is no failure.
    let _ = model.remove_target(iqn);
    let object = model.objects.keys().find(|object| object.name == iqn).cloned();
    object.map(|object| model.remove_object(&object));
}

fn restore(model: &mut Model, world: &dyn World, file: Option<&str>) -> Result<(), Failure> {
    let file = file.map_or_else(|| world.saved_file(), str::to_owned);
    let text = world.read_saved(&file)?;
    let text =
        text.ok_or_else(|| Failure::new(format!("Could not restore configuration file {file}: it is not there")))?;
    let errors = saved::restore(model, &text, Only::default(), &|| world.new_serial())?;
    for error in errors {
        complain(&error);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
