//! `get` and `set`: the groups of attributes, parameters, users and preferences.

use crate::attributes::{self, Attribute, OF_ACLS, OF_OBJECTS, OF_TPGS, Takes};
use crate::failure::Failure;
use crate::model::{Auth, Secret, no_object};
use crate::node::Node;
use crate::shell::Call;
use crate::translate::{parameter, parameter_names, set_parameter};

/// The keys of users.
const AUTH: [&str; 4] = ["mutual_password", "mutual_userid", "password", "userid"];

/// Preferences with their defaults, and whether another value has an effect here that LIO has, or none at all.
const PREFERENCES: [(&str, &str, Kind); 20] = [
    ("auto_add_default_portal", "true", Kind::Flag),
    ("auto_add_mapped_luns", "true", Kind::Flag),
    ("auto_cd_after_create", "false", Kind::Flag),
    ("auto_enable_tpgt", "true", Kind::Always),
    ("auto_save_on_exit", "true", Kind::Always),
    ("auto_use_daemon", "false", Kind::Always),
    ("color_command", "cyan", Kind::Look),
    ("color_default", "none", Kind::Look),
    ("color_keyword", "cyan", Kind::Look),
    ("color_mode", "true", Kind::Look),
    ("color_parameter", "magenta", Kind::Look),
    ("color_path", "magenta", Kind::Look),
    ("export_backstore_name_as_model", "true", Kind::Flag),
    ("loglevel_console", "info", Kind::Look),
    ("loglevel_file", "debug9", Kind::Look),
    ("max_backup_files", "10", Kind::Look),
    ("prompt_length", "30", Kind::Look),
    ("tree_max_depth", "0", Kind::Look),
    ("tree_round_nodes", "true", Kind::Look),
    ("tree_status_mode", "true", Kind::Look),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// True or false, as in LIO.
    Flag,
    /// Always as by default.
    Always,
    /// A preference for the look of LIO's shell: it is shown again, and has no effect.
    Look,
}

/// A member of a group.
struct Member {
    name: &'static str,
    value: String,
    is_writable: bool,
    about: &'static str,
}

fn groups(node: &Node) -> &'static [&'static str] {
    match node {
        Node::Object(_) => &["attribute", "global"],
        Node::Tpg(_) => &["attribute", "auth", "global", "parameter"],
        Node::Acl(..) => &["attribute", "auth", "global"],
        Node::Iscsi => &["discovery_auth", "global"],
        _ => &["global"],
    }
}

fn members(call: &Call<'_>, group: &str) -> Result<Vec<Member>, Failure> {
    let of = |table: &'static [Attribute], numbers| {
        let member = |attribute: &'static Attribute| Member {
            name: attribute.name,
            value: attributes::value(table, numbers, attribute.name).to_string(),
            is_writable: attribute.takes != Takes::Nothing,
            about: attribute.about,
        };
        table.iter().map(member).collect()
    };
    let users = |auth: &Auth| {
        let secret = |secret: &Secret| secret.text.clone().unwrap_or_default();
        let value = |name: &str| match name {
            "userid" => auth.userid.clone(),
            "password" => secret(&auth.password),
            "mutual_userid" => auth.mutual_userid.clone(),
            _ => secret(&auth.mutual_password),
        };
        let member = |name| Member { name, value: value(name), is_writable: true, about: "The user, or the secret." };
        AUTH.into_iter().map(member).collect()
    };
    Ok(match (group, &call.node) {
        ("global", _) => {
            let value =
                |name: &str, default: &str| call.model.preferences.get(name).map_or(default, |value| value).to_owned();
            let member = |(name, default, _): (&'static str, &str, Kind)| Member {
                name,
                value: value(name, default),
                is_writable: true,
                about: "A preference.",
            };
            PREFERENCES.into_iter().map(member).collect()
        }
        ("attribute", Node::Object(name)) => {
            let object = call.model.objects.get(name).ok_or_else(|| no_object(&name.name))?;
            of(OF_OBJECTS, &object.attributes)
        }
        ("attribute", Node::Tpg(iqn)) => of(OF_TPGS, &call.model.target(iqn)?.access.attributes),
        ("attribute", Node::Acl(iqn, initiator)) => of(OF_ACLS, &call.model.target(iqn)?.acl(initiator)?.attributes),
        ("parameter", Node::Tpg(iqn)) => {
            let target = call.model.target(iqn)?;
            let member = |name| {
                let value = parameter(target, name)?;
                Some(Member { name, value, is_writable: true, about: "A key of the login (RFC 7143)." })
            };
            parameter_names().filter_map(member).collect()
        }
        ("auth", Node::Tpg(iqn)) => users(&call.model.target(iqn)?.access.auth),
        ("auth", Node::Acl(iqn, initiator)) => users(&call.model.target(iqn)?.acl(initiator)?.auth),
        ("discovery_auth", Node::Iscsi) => AUTH
            .into_iter()
            .chain(["enable"])
            .map(|name| Member {
                name,
                value: String::new(),
                is_writable: false,
                about: "The table discovery of the configuration file says it.",
            })
            .collect(),
        _ => return Err(Failure::new(format!("Unknown configuration group: {group}"))),
    })
}

fn list_groups(call: &mut Call<'_>) {
    let groups = groups(&call.node).join(" ");
    call.say(format!("AVAILABLE CONFIGURATION GROUPS\n==============================\n{groups}"));
}

pub(crate) fn get(call: &mut Call<'_>) -> Result<(), Failure> {
    let Some((group, wanted)) = call.line.positional.split_first() else {
        list_groups(call);
        return Ok(());
    };
    let members = members(call, group)?;
    if wanted.is_empty() {
        let title = format!("{} CONFIG GROUP", group.to_uppercase());
        call.say(format!("{title}\n{}", "=".repeat(title.len())));
        for Member { name, value, is_writable, about } in members {
            let text = format!("{name}={value}{}", if is_writable { "" } else { " [ro]" });
            call.say(format!("{text}\n{}\n{about}\n", "-".repeat(text.len())));
        }
        return Ok(());
    }
    for name in wanted {
        let member = members.iter().find(|member| member.name == name);
        let member = member.ok_or_else(|| Failure::new(format!("No parameter '{name}' in group '{group}'.")))?;
        call.say(format!("{name}={} {}", member.value, if member.is_writable { "" } else { "[ro]" }));
    }
    Ok(())
}

pub(crate) fn set(call: &mut Call<'_>) -> Result<(), Failure> {
    let group = match &call.line.positional[..] {
        [] => {
            list_groups(call);
            return Ok(());
        }
        [group] => group.clone(),
        more => {
            let count = more.len();
            return Err(Failure::new(format!("Got {count} positionnal parameters, expected at most 1.")));
        }
    };
    let known: Vec<Member> = members(call, &group)?;
    if call.line.named.is_empty() {
        return Err(Failure::new(format!("nothing to set in the group {group}: write NAME=VALUE")));
    }
    for (name, value) in &call.line.named {
        let Some(member) = known.iter().find(|member| member.name == name) else {
            return Err(Failure::new(format!("Unknown parameter {name} in group '{group}'.")));
        };
        if !member.is_writable {
            return Err(Failure::new(format!("Parameter {name} is read-only.")));
        }
        set_one(call, &group, name, value)?;
        let now = members(call, &group)?;
        let now = now.iter().find(|member| member.name == name).map_or("", |member| &member.value);
        let text = format!("Parameter {name} is now '{now}'.");
        call.say(text);
    }
    Ok(())
}

fn set_one(call: &mut Call<'_>, group: &str, name: &str, value: &str) -> Result<(), Failure> {
    let number = || {
        let wrong = || Failure::new(format!("Not setting {name}! Syntax error, '{value}' is not a NUMBER."));
        value.parse::<i64>().map_err(|_| wrong())
    };
    match (group, &call.node) {
        ("global", _) => set_preference(call, name, value),
        ("attribute", Node::Object(object)) => call.model.set_attribute(object, name, number()?),
        ("attribute", Node::Tpg(iqn)) => {
            attributes::set(OF_TPGS, &mut call.model.target_mut(iqn)?.access.attributes, name, number()?)
        }
        ("attribute", Node::Acl(iqn, initiator)) => {
            let acl = call.model.target_mut(iqn)?.acl_mut(initiator)?;
            attributes::set(OF_ACLS, &mut acl.attributes, name, number()?)
        }
        ("parameter", Node::Tpg(iqn)) => set_parameter(call.model.target_mut(iqn)?, name, value),
        ("auth", Node::Tpg(iqn)) => {
            set_user(&mut call.model.target_mut(iqn)?.access.auth, name, value);
            Ok(())
        }
        ("auth", Node::Acl(iqn, initiator)) => {
            set_user(&mut call.model.target_mut(iqn)?.acl_mut(initiator)?.auth, name, value);
            Ok(())
        }
        _ => Err(Failure::new(format!("Unknown configuration group: {group}"))),
    }
}

fn set_user(auth: &mut Auth, name: &str, value: &str) {
    let secret = |old: &Secret| if old.text.as_deref() == Some(value) { old.clone() } else { Secret::new(value) };
    match name {
        "userid" => auth.userid = value.into(),
        "password" => auth.password = secret(&auth.password),
        "mutual_userid" => auth.mutual_userid = value.into(),
        _ => auth.mutual_password = secret(&auth.mutual_password),
    }
}

fn set_preference(call: &mut Call<'_>, name: &str, value: &str) -> Result<(), Failure> {
    let known = PREFERENCES.iter().find(|(known, ..)| *known == name);
    let Some((_, default, kind)) = known else {
        return Err(Failure::new(format!("Unknown parameter {name} in group 'global'.")));
    };
    let refused = |why: &str| Failure::new(format!("Not setting {name}! {why}"));
    match kind {
        Kind::Flag if !["true", "false"].contains(&value) => {
            return Err(refused(&format!("Syntax error, '{value}' is not true|false.")));
        }
        Kind::Always if value != *default => return Err(refused(&format!("With Lunette it is always {default}"))),
        Kind::Flag | Kind::Always | Kind::Look => {}
    }
    if value == *default {
        call.model.preferences.remove(name);
    } else {
        call.model.preferences.insert(name.into(), value.into());
    }
    Ok(())
}
