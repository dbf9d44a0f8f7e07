//! The tree as `ls` draws it, and the descriptions of its nodes.

use crate::attributes::{self, OF_TPGS};
use crate::failure::Failure;
use crate::model::{Auth, Model, ObjectName, Plugin};
use crate::node::Node;

/// The columns of a tree where there is no terminal, as configshell has them.
pub(crate) const MAX_COLUMNS: usize = 132;

/// The bytes of the units in which lengths are shown.
const KILO: f64 = 1024.0;

/// The tree below a node, down to `depth` levels; 0 is all of it.
pub(crate) fn tree(node: &Node, depth: usize, columns: usize, model: &Model) -> String {
    let mut text = String::new();
    let depth = if depth == 0 { usize::MAX } else { depth };
    draw(node, &mut Vec::new(), depth, columns, model, &mut text);
    text.pop();
    text
}

fn draw(node: &Node, pipes: &mut Vec<bool>, depth: usize, columns: usize, model: &Model, text: &mut String) {
    let name = node.name();
    let description = shown(node, model);
    // The root has the first column alone, and the last pipe is that of the node itself.
    let around = pipes.split_last().map_or(&[][..], |(_, around)| around);
    let indent = if pipes.is_empty() { "" } else { "  " };
    let margin: String = around.iter().map(|pipe| if *pipe { "| " } else { "  " }).collect();
    let margin = format!("{indent}{margin}");
    let used = margin.len() + "o- ".len() + name.chars().count() + description.chars().count() + 3;
    let dots = ".".repeat((columns - 1).saturating_sub(used));
    text.extend([&margin, "o- ", &name, " ", &dots, " [", &description, "]\n"]);
    if depth == 0 {
        return;
    }
    let children = node.children(model);
    for (index, child) in children.iter().enumerate() {
        pipes.push(index + 1 < children.len());
        draw(child, pipes, depth - 1, columns, model, text);
        pipes.pop();
    }
}

/// The description of a node in a tree.
fn shown(node: &Node, model: &Model) -> String {
    match summary(node, model) {
        (text, _) if !text.is_empty() => text,
        (_, Some(true)) => "OK".into(),
        (_, Some(false)) => "ERROR".into(),
        (_, None) => "...".into(),
    }
}

/// The description of a node, and whether all is well with it.
pub(crate) fn summary(node: &Node, model: &Model) -> (String, Option<bool>) {
    let count = |what: &str| (format!("{what}: {}", node.children(model).len()), None);
    match node {
        Node::Root | Node::Backstores => (String::new(), None),
        Node::Plugin(_) => count("Storage Objects"),
        Node::Object(name) => (object(name, model), Some(true)),
        Node::Iscsi => count("Targets"),
        Node::Target(_) => count("TPGs"),
        Node::Tpg(iqn) => tpg(iqn, model),
        Node::Luns(_) => count("LUNs"),
        Node::Lun(iqn, number) => (lun(iqn, *number, model), Some(true)),
        Node::Acls(_) => count("ACLs"),
        Node::Acl(iqn, initiator) => {
            let (text, is_well) = acl(iqn, initiator, model);
            (format!("{text}Mapped LUNs: {}", node.children(model).len()), is_well)
        }
        Node::Mapped(iqn, initiator, number) => (mapped(iqn, initiator, *number, model), Some(true)),
        Node::Portals(_) => count("Portals"),
        Node::Portal(..) => (String::new(), Some(true)),
    }
}

fn object(name: &ObjectName, model: &Model) -> String {
    let Some(object) = model.objects.get(name) else { return String::new() };
    let is_used = model.targets.values().flat_map(|target| target.luns.values()).any(|lun| lun.object == *name);
    let status = if is_used { "activated" } else { "deactivated" };
    let size = object.size.map_or_else(|| "?".into(), human);
    let read_only = if object.read_only { "ro " } else { "" };
    match name.plugin {
        Plugin::Block => format!("{} ({size}) {read_only}write-back {status}", object.disk),
        Plugin::Fileio => format!("{} ({size}) write-back {status}", object.disk),
        Plugin::Ramdisk => format!("({size}) {status}"),
        Plugin::User => format!("{} ({size}) {status}", object.disk),
    }
}

fn tpg(iqn: &str, model: &Model) -> (String, Option<bool>) {
    let Some(target) = model.targets.get(iqn) else { return (String::new(), None) };
    let is_set = |name: &str| attributes::value(OF_TPGS, &target.access.attributes, name) != 0;
    let auth = &target.access.auth;
    match (is_set("generate_node_acls"), is_set("authentication")) {
        (true, false) => ("gen-acls, no-auth".into(), Some(true)),
        (false, false) => ("no-gen-acls, no-auth".into(), None),
        (false, true) => ("no-gen-acls, auth per-acl".into(), None),
        (true, true) => (format!("gen-acls, tpg-auth, {}", ways(auth)), Some(auth.is_complete())),
    }
}

fn ways(auth: &Auth) -> &'static str {
    if auth.is_mutual() { "mutual auth" } else { "1-way auth" }
}

fn acl(iqn: &str, initiator: &str, model: &Model) -> (String, Option<bool>) {
    let Some(target) = model.targets.get(iqn) else { return (String::new(), None) };
    let Ok(acl) = target.acl(initiator) else { return (String::new(), None) };
    if !target.access.is_set("authentication") {
        return (String::new(), None);
    }
    (format!("{}, ", ways(&acl.auth)), Some(acl.auth.is_complete()))
}

fn lun(iqn: &str, number: u16, model: &Model) -> String {
    let Some(lun) = model.targets.get(iqn).and_then(|target| target.luns.get(&number)) else { return String::new() };
    let disk = model.objects.get(&lun.object).map_or("", |object| &object.disk);
    let disk =
        if disk.is_empty() || lun.object.plugin == Plugin::Ramdisk { String::new() } else { format!(" ({disk})") };
    format!("{}{disk} (default_tg_pt_gp)", lun.object)
}

fn mapped(iqn: &str, initiator: &str, number: u16, model: &Model) -> String {
    let Some(target) = model.targets.get(iqn) else { return String::new() };
    let mapped = target.acl(initiator).ok().and_then(|acl| target.mapped(acl).get(&number).copied());
    let Some(mapped) = mapped else { return String::new() };
    let object = target.luns.get(&mapped.lun).map(|lun| lun.object.to_string()).unwrap_or_default();
    format!("lun{} {object} ({})", mapped.lun, if mapped.write_protect { "ro" } else { "rw" })
}

/// A length as targetcli shows it.
#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut size = bytes as f64 / KILO;
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        if size < KILO {
            return format!("{size:.1}{unit}");
        }
        size /= KILO;
    }
    format!("{size:.1}PiB")
}

/// The bytes of a length as targetcli takes it: `10G`, `512mb`, `1048576`.
pub(crate) fn bytes(text: &str) -> Result<u64, Failure> {
    let wrong = || Failure::new(format!("Cannot interpret size, wrong format: {text}"));
    let size = text.replace('i', "").to_lowercase();
    let size = size.strip_suffix('b').unwrap_or(&size);
    let digits = size.trim_end_matches(['k', 'm', 'g', 't']);
    let power = match &size[digits.len()..] {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << (10 * power)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_and_written() {
        for (text, expected) in [("512", 512), ("1k", 1024), ("10MB", 10 << 20), ("3GiB", 3 << 30), ("1T", 1 << 40)] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "G", "1.5G", "-1", "1kk", "1P", "99999999999999999999", "18446744073709551615T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for (length, expected) in [(100, "100 bytes"), (1 << 20, "1.0MiB"), (3 << 29, "1.5GiB"), (1 << 60, "1024.0PiB")]
        {
            assert_eq!(human(length), expected);
        }
    }
}
