//! `info`: the plain facts of a node, sorted by their names.

use crate::failure::Failure;
use crate::model::{Plugin, no_object};
use crate::node::Node;
use crate::portal;
use crate::shell::Call;

pub(crate) fn info(call: &mut Call<'_>) -> Result<(), Failure> {
    call.line.bind([], 0)?;
    let mut facts = facts(call)?;
    facts.sort_unstable();
    for (name, value) in facts {
        call.say(format!("{name}: {value}"));
    }
    if let Node::Acl(_, initiator) = call.node.clone() {
        call.say("wwns:");
        call.say(initiator);
    }
    Ok(())
}

/// True or false as Python writes it.
fn flag(is: bool) -> String {
    if is { "True" } else { "False" }.into()
}

fn facts(call: &Call<'_>) -> Result<Vec<(&'static str, String)>, Failure> {
    Ok(match &call.node {
        Node::Object(name) => {
            let object = call.model.objects.get(name).ok_or_else(|| no_object(&name.name))?;
            let mut facts =
                vec![("name", name.name.clone()), ("plugin", name.plugin.name().into()), ("wwn", object.wwn.clone())];
            match name.plugin {
                Plugin::Block => facts.push(("readonly", flag(object.read_only))),
                Plugin::Fileio => facts.push(("aio", flag(false))),
                Plugin::Ramdisk => {}
                Plugin::User => facts.push(("config", format!("lunette/{}", object.disk))),
            }
            if matches!(name.plugin, Plugin::Block | Plugin::Fileio) {
                facts.extend([("dev", object.disk.clone()), ("write_back", flag(true))]);
            }
            if name.plugin != Plugin::Block {
                facts.push(("size", object.size.unwrap_or_default().to_string()));
            }
            facts
        }
        Node::Iscsi => vec![("Fabric module name", "iscsi".into()), ("Allowed WWN types", "iqn, naa, eui".into())],
        Node::Target(iqn) => vec![("fabric", "iscsi".into()), ("wwn", iqn.clone())],
        Node::Tpg(iqn) => {
            let auth = &call.model.target(iqn)?.access.auth;
            let mut facts = vec![("enable", flag(true)), ("tag", "1".into())];
            facts.extend((!auth.userid.is_empty()).then(|| ("chap_userid", auth.userid.clone())));
            facts
        }
        Node::Lun(iqn, number) => {
            let lun = call.model.target(iqn)?.luns.get(number);
            let object = lun.map(|lun| format!("/backstores/{}", lun.object)).unwrap_or_default();
            vec![
                ("alua_tg_pt_gp_name", "default_tg_pt_gp".into()),
                ("index", number.to_string()),
                ("storage_object", object),
            ]
        }
        Node::Acl(iqn, initiator) => {
            let auth = &call.model.target(iqn)?.acl(initiator)?.auth;
            (!auth.userid.is_empty()).then(|| ("chap_userid", auth.userid.clone())).into_iter().collect()
        }
        Node::Mapped(iqn, initiator, number) => {
            let target = call.model.target(iqn)?;
            let mapped = target.mapped(target.acl(initiator)?).get(number).copied();
            let mapped = mapped.ok_or_else(|| Failure::new(format!("No such MappedLUN in configfs: {number}")))?;
            let protect = ("write_protect", flag(mapped.write_protect));
            vec![("index", number.to_string()), ("tpg_lun", mapped.lun.to_string()), protect]
        }
        Node::Portal(_, address) => {
            let (ip, port) = portal::split(address).unwrap_or((address, portal::DEFAULT_PORT));
            let (ip, port) = (ip.to_owned(), port.to_string());
            vec![("ip_address", ip), ("iser", flag(false)), ("offload", flag(false)), ("port", port)]
        }
        Node::Root | Node::Backstores | Node::Plugin(_) | Node::Luns(_) | Node::Acls(_) | Node::Portals(_) => {
            Vec::new()
        }
    })
}
