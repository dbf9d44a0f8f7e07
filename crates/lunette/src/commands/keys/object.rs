//! The commands on objects of a key server.

use std::path::Path;

use lunette_keys::client::{Client, ClientError};
use lunette_keys::kmip::{Attribute, AttributeValue, Request, ResultReason, RevocationCode, State};
use lunette_keys::server::USER_ATTRIBUTE;
use lunette_keys::source::{self, KmipUrl};
use lunette_keys::{Key, write_private};
use serde::Serialize;
use serde_json::json;

use super::list::hex;
use super::place::{Tls, object_name};
use crate::disks::encrypted::keys::key_failure;
use crate::failure::Failure;
use crate::output;
use crate::terminal::ask;

/// The length of the keys that are created, in bits.
const KEY_BITS: i32 = 256;

pub(super) fn create(url: &KmipUrl, tls: &Tls) -> Result<(), Failure> {
    let mut client = tls.connect(&url.server)?;
    let id = create_active(&mut client, object_name(url)?)?;
    output::line(format_args!("object {id}"))
}

/// Creates a key of a name that is not there yet, and lets it be used.
fn create_active(client: &mut Client, name: &str) -> Result<String, Failure> {
    let there = client.locate(vec![Attribute::named(name)]).map_err(failure)?;
    if let Some(id) = there.first() {
        return Err(Failure::Configuration(format!("the key server has an object {name} already: {id}")));
    }
    let id = client.create_key(name, KEY_BITS).map_err(failure)?;
    client.activate(&id).map_err(failure)?;
    Ok(id)
}

/// The object of a URL with its key; it is created when it is missing.
pub(super) fn find_or_create(url: &KmipUrl, tls: &Tls) -> Result<(String, Key), Failure> {
    let mut client = tls.connect(&url.server)?;
    let name = object_name(url)?;
    let id = match client.find(name) {
        Ok(id) => id,
        Err(ClientError::NotFound(_)) => create_active(&mut client, name)?,
        Err(error) => return Err(failure(error)),
    };
    let key = client.get_key(&id).map_err(failure)?;
    Ok((id, key))
}

#[derive(Serialize)]
struct ObjectReport {
    object: String,
    names: Vec<String>,
    state: Option<&'static str>,
    users: Vec<String>,
}

impl ObjectReport {
    fn new(object: String, attributes: &[Attribute]) -> Self {
        let mut report = Self { object, names: Vec::new(), state: None, users: Vec::new() };
        for attribute in attributes {
            match (&*attribute.name, &attribute.value) {
                (_, AttributeValue::Name(name, _)) => report.names.push(name.clone()),
                ("State", AttributeValue::Enumeration(number)) => {
                    report.state = State::from_number(*number).map(State::name);
                }
                (USER_ATTRIBUTE, AttributeValue::Text(user)) => report.users.push(user.clone()),
                _ => {}
            }
        }
        report
    }
}

/// Shows the object of the URL, or all.
pub(super) fn list(url: &KmipUrl, tls: &Tls, json: bool) -> Result<(), Failure> {
    let mut client = tls.connect(&url.server)?;
    let wanted = url.name.iter().map(|name| Attribute::named(name)).collect();
    for id in client.locate(wanted).map_err(failure)? {
        let attributes = client.attributes(&id).map_err(failure)?;
        let report = ObjectReport::new(id, &attributes);
        if json {
            output::json(&report)?;
            continue;
        }
        let ObjectReport { object, names, state, users } = report;
        let users = if users.is_empty() { String::new() } else { format!("  users {}", users.join(",")) };
        output::line(format_args!("{object}  {}  {}{users}", names.join(","), state.unwrap_or("-")))?;
    }
    Ok(())
}

/// Puts a key file into the key server, in the place of an older one of the same volume.
pub(super) fn publish(url: &KmipUrl, tls: &Tls, bytes: &[u8]) -> Result<(), Failure> {
    let mut client = tls.connect(&url.server)?;
    let id = source::publish(&mut client, object_name(url)?, bytes).map_err(key_failure)?;
    output::line(format_args!("object {id}"))
}

/// Lets another client read the object.
pub(super) fn grant(url: &KmipUrl, tls: &Tls, user: &str) -> Result<(), Failure> {
    let (mut client, id) = find(url, tls)?;
    let attribute = Attribute::new(USER_ATTRIBUTE, AttributeValue::Text(user.into()));
    client.request(&Request::AddAttribute { id: Some(id), attribute }).map_err(access_failure)?;
    output::line(format_args!("{user} may read the object"))
}

/// Takes the object from a client that may read it, or ends its use altogether.
pub(super) fn revoke(url: &KmipUrl, tls: &Tls, user: Option<&str>, compromised: bool) -> Result<(), Failure> {
    let (mut client, id) = find(url, tls)?;
    let Some(user) = user else {
        let code = if compromised { RevocationCode::KeyCompromise } else { RevocationCode::CessationOfOperation };
        client.revoke(&id, code).map_err(failure)?;
        return output::line(format_args!("the object {id} is revoked: it can still be read, to decrypt"));
    };
    let attributes = client.attributes(&id).map_err(failure)?;
    let is_user = |attribute: &&Attribute| {
        attribute.name == USER_ATTRIBUTE && attribute.value == AttributeValue::Text(user.into())
    };
    let found = attributes.iter().find(is_user);
    let found = found.ok_or_else(|| Failure::Configuration(format!("{user} is no user of the object")))?;
    let request = Request::DeleteAttribute { id: Some(id), name: USER_ATTRIBUTE.into(), index: found.index };
    client.request(&request).map_err(access_failure)?;
    output::line(format_args!("{user} may no longer read the object; what {user} has read cannot be taken back"))
}

pub(super) fn destroy(url: &KmipUrl, tls: &Tls, yes: bool) -> Result<(), Failure> {
    let (mut client, id) = find(url, tls)?;
    let name = object_name(url)?;
    ask(yes, &format!("What {name} encrypts can never be read again, by anyone: its key {id} is destroyed."))?;
    // Active objects are revoked first. Others have a state in which they can be destroyed, or none.
    match client.revoke(&id, RevocationCode::CessationOfOperation) {
        Ok(()) | Err(ClientError::Refused(_)) => {}
        Err(error) => return Err(failure(error)),
    }
    client.destroy(&id).map_err(failure)?;
    output::line(format_args!("the object {id} is destroyed"))
}

pub(super) fn export(url: &KmipUrl, tls: &Tls, to: &Path) -> Result<(), Failure> {
    let (mut client, id) = find(url, tls)?;
    let object = client.get(&id).map_err(failure)?;
    let text = format!("{:#}\n", json!({ "object": id, "name": object_name(url)?, "key": hex(&object.material) }));
    write_private(to, text.as_bytes()).map_err(Failure::configuration)
}

fn find(url: &KmipUrl, tls: &Tls) -> Result<(Client, String), Failure> {
    let mut client = tls.connect(&url.server)?;
    let id = client.find(object_name(url)?).map_err(failure)?;
    Ok((client, id))
}

#[expect(clippy::needless_pass_by_value, reason = "it ends the error")]
pub(super) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(_) => Failure::Other(error.to_string()),
        _ => Failure::Configuration(error.to_string()),
    }
}

/// Users of objects are this project's own attribute.
fn access_failure(error: ClientError) -> Failure {
    match &error {
        ClientError::Refused(refusal) if refusal.reason == ResultReason::OperationNotSupported => {
            Failure::Other("this key server has no users of objects; use its own way".into())
        }
        _ => failure(error),
    }
}
