//! Storage objects: `create` and `delete` below `/backstores`.

use crate::failure::Failure;
use crate::listing::bytes;
use crate::model::{Model, ObjectName, Plugin, StorageObject};
use crate::node::Node;
use crate::shell::{Call, Found, World, is};

pub(crate) fn create(call: &mut Call<'_>, plugin: Plugin) -> Result<(), Failure> {
    match plugin {
        Plugin::Block => create_block(call),
        Plugin::Fileio => create_fileio(call),
        Plugin::Ramdisk => create_ramdisk(call),
        Plugin::User => create_user(call),
    }
}

pub(crate) fn delete(call: &mut Call<'_>, plugin: Plugin) -> Result<(), Failure> {
    let [name, save] = call.line.bind(["name", "save"], 1)?;
    // Each change is saved.
    is(save, false)?;
    let name = name.unwrap_or_default().to_owned();
    call.model.remove_object(&ObjectName { plugin, name: name.clone() })?;
    call.say(format!("Deleted storage object {name}."));
    Ok(())
}

fn create_block(call: &mut Call<'_>) -> Result<(), Failure> {
    let [name, dev, readonly, wwn] = call.line.bind(["name", "dev", "readonly", "wwn"], 2)?;
    let (name, dev) = (name.unwrap_or_default().to_owned(), dev.unwrap_or_default().to_owned());
    let is_read_only_device = match call.world.look_at(&dev) {
        // Lunette serves files as well as devices, and volumes by their names.
        Found::BlockDevice(is_read_only) => is_read_only,
        Found::File(_) => false,
        Found::Nothing | Found::Other if is_of_lunette(&dev) => false,
        Found::Nothing => return Err(Failure::new(format!("Could not open {dev}"))),
        Found::Other => return Err(Failure::new(format!("Device {dev} is not a TYPE_DISK block device"))),
    };
    let read_only = is(readonly, is_read_only_device)?;
    let object = StorageObject { disk: dev.clone(), read_only, wwn: serial(wwn, call.world), ..new() };
    add(call, Plugin::Block, &name, object)?;
    call.say(format!("Created block storage object {name} using {dev}."));
    Ok(())
}

fn create_fileio(call: &mut Call<'_>) -> Result<(), Failure> {
    let names = ["name", "file_or_dev", "size", "write_back", "sparse", "wwn"];
    let [name, file, size, write_back, sparse, wwn] = call.line.bind(names, 2)?;
    let (name, file) = (name.unwrap_or_default().to_owned(), file.unwrap_or_default().to_owned());
    if !is(write_back, true)? {
        return Err(Failure::new("write_back=false: a file of Lunette has a write cache that initiators flush"));
    }
    if let Some((other, _)) = call.model.objects.iter().find(|(_, object)| object.disk == file) {
        let text = format!("storage object for {file} already exists: {}", other.name);
        let is_it = other.plugin == Plugin::Fileio && other.name == name;
        return Err(if is_it { Failure::done_already(text) } else { Failure::new(text) });
    }
    let is_full = !is(sparse, true)?;
    let wwn = serial(wwn, call.world);
    let (size, is_new_file) = match call.world.look_at(&file) {
        Found::BlockDevice(_) => {
            if size.is_some() {
                call.say("Block device, size parameter ignored");
            }
            call.say("Note: block backstore preferred for best results");
            (None, false)
        }
        Found::File(length) => {
            if size.is_some() {
                call.say(format!("{file} exists, using its size ({length} bytes) instead"));
            }
            (Some(length), false)
        }
        Found::Other => return Err(Failure::new(format!("Path {file} exists but is not a file"))),
        Found::Nothing if !file.starts_with('/') => {
            return Err(Failure::new(format!("Could not open {file}: name the file by its whole path")));
        }
        Found::Nothing => match size {
            Some(size) => (Some(bytes(size)?), true),
            None => return Err(Failure::new("Attempting to create file for new fileio backstore, need a size")),
        },
    };
    let object = StorageObject { disk: file, size, is_new_file, is_full: is_full && is_new_file, wwn, ..new() };
    add(call, Plugin::Fileio, &name, object)?;
    call.say(format!("Created fileio {name} with size {}", size.unwrap_or_default()));
    Ok(())
}

fn create_ramdisk(call: &mut Call<'_>) -> Result<(), Failure> {
    let [name, size, nullio, wwn] = call.line.bind(["name", "size", "nullio", "wwn"], 2)?;
    if is(nullio, false)? {
        return Err(Failure::new("nullio: Lunette has no disk that forgets what is written"));
    }
    let (name, size) = (name.unwrap_or_default().to_owned(), size.unwrap_or_default().to_owned());
    let length = bytes(&size)?;
    let disk = format!("mem:{length}");
    let object = StorageObject { disk, size: Some(length), wwn: serial(wwn, call.world), ..new() };
    add(call, Plugin::Ramdisk, &name, object)?;
    call.say(format!("Created ramdisk {name} with size {size}."));
    Ok(())
}

fn create_user(call: &mut Call<'_>) -> Result<(), Failure> {
    let names = ["name", "size", "cfgstring", "wwn", "hw_max_sectors", "control"];
    let [name, size, cfgstring, wwn, ..] = call.line.bind(names, 3)?;
    let (name, disk) = (name.unwrap_or_default().to_owned(), cfgstring.unwrap_or_default().to_owned());
    let size = bytes(size.unwrap_or_default())?;
    if !is_of_lunette(&disk) {
        return Err(Failure::new(format!("cfgstring invalid: {disk} is no disk of Lunette")));
    }
    let object = StorageObject { disk, size: Some(size), wwn: serial(wwn, call.world), ..new() };
    add(call, Plugin::User, &name, object)?;
    call.say(format!("Created user-backed storage object {name} size {size}."));
    Ok(())
}

fn new() -> StorageObject {
    StorageObject { is_kept: true, ..StorageObject::default() }
}

fn serial(wwn: Option<&str>, world: &dyn World) -> String {
    wwn.map_or_else(|| world.new_serial(), str::to_owned)
}

fn add(call: &mut Call<'_>, plugin: Plugin, name: &str, mut object: StorageObject) -> Result<(), Failure> {
    if !call.model.prefers("export_backstore_name_as_model") {
        object.attributes.insert("emulate_model_alias".into(), 0);
    }
    let name = ObjectName { plugin, name: name.into() };
    call.model.add_object(name.clone(), object)?;
    call.made(Node::Object(name));
    Ok(())
}

/// Whether a text names a disk of Lunette that is no path.
fn is_of_lunette(disk: &str) -> bool {
    ["volume:", "rbd:", "nbd://", "nbds://", "nbd+unix://", "nbds+unix://", "iscsi://"]
        .iter()
        .any(|scheme| disk.starts_with(scheme))
}

/// The storage object at a path: one of the tree, or a new one for a file or a device.
pub(crate) fn at(call: &mut Call<'_>, path: &str) -> Result<ObjectName, Failure> {
    match call.node.find(path, call.model) {
        Ok(Node::Object(name)) => return Ok(name),
        Ok(_) => return Err(Failure::new("storage object or path not valid")),
        Err(_) => {}
    }
    // In `saveconfig.json` a path has the name of the plugin, and in the tree that of a handler.
    if let Some((plugin, name)) = path.strip_prefix("/backstores/").and_then(|rest| rest.split_once('/'))
        && let Some(plugin) = Plugin::of(plugin)
    {
        let name = ObjectName { plugin, name: name.into() };
        return known(call.model, name);
    }
    let (plugin, size) = match call.world.look_at(path) {
        Found::BlockDevice(_) => (Plugin::Block, None),
        Found::File(length) => (Plugin::Fileio, Some(length)),
        Found::Nothing | Found::Other => return Err(Failure::new("storage object or path not valid")),
    };
    let name = ObjectName { plugin, name: path.trim_matches('/').replace('/', "-") };
    let wwn = call.world.new_serial();
    call.model.add_object(name.clone(), StorageObject { disk: path.into(), size, wwn, ..new() })?;
    call.say(format!("Created storage object {}.", name.name));
    Ok(name)
}

fn known(model: &Model, name: ObjectName) -> Result<ObjectName, Failure> {
    let is_there = model.objects.contains_key(&name);
    is_there.then_some(name).ok_or_else(|| Failure::new("storage object or path not valid"))
}
