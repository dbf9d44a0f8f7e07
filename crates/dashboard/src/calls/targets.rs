//! Targets, their gateways, and their users.

use std::net::IpAddr;

use super::Done;
use crate::document::{Auth, Document, Portal, Target};
use crate::form::Form;
use crate::refusal::Refusal;
use crate::{names, settings};

/// `PUT target/{target}`: a new target, or other controls of one.
pub(crate) fn put_target(document: &mut Document, target: &str, form: &Form) -> Done {
    let controls = form.get("controls");
    match form.get("mode") {
        None => {
            let target = document.targets.entry(names::iqn(target)?).or_default();
            settings::control_target(&mut target.controls, controls)?;
            Ok("Target defined successfully")
        }
        Some("reconfigure") => {
            let defined = || Refusal::bad(format!("Target: {target} is not defined."));
            let target = document.targets.get_mut(target).ok_or_else(defined)?;
            settings::control_target(&mut target.controls, controls)?;
            Ok("Target reconfigured.")
        }
        Some(mode) => Err(Refusal::failed(format!("Unexpected mode provided for {target} - {mode}"))),
    }
}

/// `DELETE target/{target}`, with its gateways, clients and the places of its disks.
pub(crate) fn delete_target(document: &mut Document, target: &str) -> Done {
    document.target(target)?;
    document.targets.remove(target);
    Ok("Target deleted.")
}

/// `PUT gateway/{target}/{gateway}`: portals of a gateway for a target. `known` are the addresses of the gateway.
pub(crate) fn new_gateway(document: &mut Document, target: &str, gateway: &str, form: &Form, known: &[String]) -> Done {
    let name = names::plain(gateway)?;
    let target = document.target_mut(target)?;
    if target.portals.contains_key(&name) {
        return Err(Refusal::bad("Gateway already exists in configuration"));
    }
    let wanted = form.list("ip_address");
    let address = |text: &&str| {
        let wanted = text.parse::<IpAddr>().ok();
        let found = known.iter().find(|known| wanted.is_some() && known.parse().ok() == wanted);
        let there =
            || format!("IP address of {text} is not available on {gateway}. Valid IPs are :{}", known.join(","));
        found.cloned().ok_or_else(|| Refusal::bad(there()))
    };
    let addresses: Vec<String> = wanted.iter().map(address).collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(Refusal::bad("ip_address is missing"));
    }
    target.portals.insert(name, Portal { portal_ip_addresses: addresses });
    document.number_gateways();
    Ok("Gateway creation successful")
}

/// `DELETE gateway/{target}/{gateway}`.
pub(crate) fn delete_gateway(document: &mut Document, target: &str, gateway: &str) -> Done {
    if document.target_mut(target)?.portals.remove(gateway).is_none() {
        return Err(Refusal::missing("Gateway does not exist in configuration"));
    }
    document.number_gateways();
    Ok("Gateway deletion successful")
}

/// `PUT targetauth/{target}`: whether initiators are named, or the user of all.
pub(crate) fn auth_target(document: &mut Document, target: &str, form: &Form) -> Done {
    let target = document.target_mut(target)?;
    match form.get("action") {
        None => target.auth = names::auth(form)?,
        Some("enable_acl") => target.acl_enabled = true,
        Some("disable_acl") if target.clients.is_empty() => target.acl_enabled = false,
        Some("disable_acl") => {
            return Err(Refusal::bad("Cannot disable ACL authentication because target has clients"));
        }
        Some(action) => return Err(Refusal::bad(format!("Invalid auth {action}"))),
    }
    Ok("target auth successful")
}

impl Target {
    /// The users of an initiator: its own, or those of the target.
    pub(crate) fn auth_of<'a>(&'a self, own: &'a Auth) -> &'a Auth {
        if own.has_user() { own } else { &self.auth }
    }
}
