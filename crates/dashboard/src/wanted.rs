//! The objects of the API that one gateway has for a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lunette_api::{Document as Object, Key, Kind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::document::{Auth, Client, Document, Place, Target};
use crate::refusal::Refusal;
use crate::settings;

/// The port of all portals: the dashboard knows addresses alone.
const PORT: u16 = 3260;

/// The longest part of an initiator's name in the name of its host.
const MAX_STEM: usize = 40;

/// The objects by their names.
pub(crate) type Wanted = BTreeMap<Key, Object>;

/// The means that the objects need beside the configuration.
pub(crate) struct Means<'a> {
    /// The name of the gateway.
    pub(crate) gateway: &'a str,
    /// The name of an image for the API.
    pub(crate) disk: &'a dyn Fn(&str, &str) -> String,
    /// The file with a secret.
    pub(crate) secret: &'a mut dyn FnMut(&str) -> io::Result<PathBuf>,
}

/// The objects of a gateway.
pub(crate) fn of(document: &Document, means: &mut Means<'_>) -> Result<Wanted, Refusal> {
    let mut wanted = Wanted::new();
    let Some(group) = document.gateways.get(means.gateway).map(|gateway| gateway.group) else { return Ok(wanted) };
    for (name, target) in &document.targets {
        let Some(portal) = target.portals.get(means.gateway) else { continue };
        for address in &portal.portal_ip_addresses {
            let address: IpAddr = address.parse().map_err(|_| Refusal::bad(format!("{address} is no IP address")))?;
            let object = json!({ "group": group });
            put(&mut wanted, Kind::Portal, &SocketAddr::new(address, PORT).to_string(), object)?;
        }
        let object = object_of(document, target, group, means)?;
        put(&mut wanted, Kind::Target, name, object)?;
    }
    Ok(wanted)
}

fn put(wanted: &mut Wanted, kind: Kind, name: &str, object: Value) -> Result<(), Refusal> {
    let key = Key::new(kind, name).map_err(Refusal::bad)?;
    if let Value::Object(mut object) = object {
        // As the API keeps it.
        object.insert(kind.name_key().into(), name.into());
        wanted.insert(key, object);
    }
    Ok(())
}

fn object_of(document: &Document, target: &Target, group: u16, means: &mut Means<'_>) -> Result<Value, Refusal> {
    let mut luns: Vec<_> = target.disks.iter().collect();
    luns.sort_by_key(|(_, place)| place.lun_id);
    let lun = |(id, place): (&String, &Place)| {
        let disk = document.disks.get(id).ok_or_else(|| Refusal::failed(format!("Disk {id} is not defined")))?;
        Ok(json!({ "number": place.lun_id, "disk": (means.disk)(&disk.pool, &disk.image), "serial": disk.wwn }))
    };
    let luns: Vec<Value> = luns.into_iter().map(lun).collect::<Result<_, Refusal>>()?;
    let mut object = json!({ "lun": luns });
    let groups: BTreeSet<u16> =
        target.portals.keys().filter_map(|name| Some(document.gateways.get(name)?.group)).collect();
    if groups.len() > 1 {
        object["gateways"] = json!({ "group": group, "groups": groups });
    }
    if !target.controls.is_empty() {
        object["session"] = settings::session(&target.controls).into();
    }
    let is_open = !target.acl_enabled;
    if is_open || target.clients.is_empty() {
        object["allow"] = if is_open { json!(["*"]) } else { json!([]) };
        prove(&mut object, &target.auth, means)?;
    } else {
        let mut hosts = Vec::new();
        for (name, client) in &target.clients {
            hosts.push(host(target, name, client, means)?);
        }
        object["host"] = hosts.into();
    }
    Ok(object)
}

/// The host of an initiator.
fn host(target: &Target, name: &str, client: &Client, means: &mut Means<'_>) -> Result<Value, Refusal> {
    let mut numbers: Vec<u16> = client.luns.values().map(|place| place.lun_id).collect();
    numbers.sort_unstable();
    let luns: Vec<Value> = numbers.into_iter().map(|number| json!({ "number": number })).collect();
    let mut host = json!({ "name": host_name(name), "initiators": [name], "lun": luns });
    prove(&mut host, target.auth_of(&client.auth), means)?;
    Ok(host)
}

/// Asks for the proofs of some users.
fn prove(object: &mut Value, auth: &Auth, means: &mut Means<'_>) -> Result<(), Refusal> {
    let mut user = |user: &str, password: &str| match (means.secret)(password) {
        Ok(file) => Ok(json!({ "user": user, "secret_file": file })),
        Err(error) => Err(Refusal::failed(format!("a secret cannot be written: {error}"))),
    };
    if auth.has_user() {
        object["chap"] = json!([user(&auth.username, &auth.password)?]);
    }
    if auth.has_mutual_user() {
        object["mutual_chap"] = user(&auth.mutual_username, &auth.mutual_password)?;
    }
    Ok(())
}

/// The name of the host of an initiator: the end of its name for people, and something that no other one has.
fn host_name(initiator: &str) -> String {
    let digest = Sha256::digest(initiator.as_bytes());
    let number = digest.iter().take(6).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let end = initiator.rsplit(':').next().unwrap_or_default();
    let stem: String = end.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(MAX_STEM).collect();
    format!("{stem}-{number:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;
    use crate::form::Form;

    fn form(text: &str) -> Form {
        Form::parse(text.as_bytes()).unwrap()
    }

    /// The objects of a gateway, with each secret as the name of its file.
    fn objects(document: &Document, gateway: &str) -> Value {
        let mut means = Means {
            gateway,
            disk: &|pool, image| format!("rbd:{pool}/{image}"),
            secret: &mut |secret| Ok(PathBuf::from(format!("/{secret}"))),
        };
        let all = of(document, &mut means).unwrap();
        all.into_iter()
            .map(|(key, object)| (key.to_string(), Value::Object(object)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    const TARGET: &str = "iqn.2026-11.org.example:a";

    /// A target with a disk and these gateways.
    fn with(gateways: &[(&str, &str)]) -> Document {
        let mut document = Document::default();
        calls::put_target(&mut document, TARGET, &form("")).unwrap();
        for (name, address) in gateways {
            let known = [(*address).to_owned()];
            calls::new_gateway(&mut document, TARGET, name, &form(&format!("ip_address={address}")), &known).unwrap();
        }
        calls::new_disk(&mut document, "rbd", "i", &form(""), "wwn-1").unwrap();
        calls::add_lun(&mut document, TARGET, &form("disk=rbd/i&lun_id=3")).unwrap();
        document
    }

    #[test]
    fn a_gateway_has_its_own_portals_and_all_know_the_groups() {
        let document = with(&[("b", "192.0.2.2"), ("a", "2001:db8::1")]);
        let target = |group: u16| {
            json!({
                "name": TARGET, "allow": [], "gateways": { "group": group, "groups": [1, 2] },
                "lun": [{ "number": 3, "disk": "rbd:rbd/i", "serial": "wwn-1" }],
            })
        };
        let key = format!("target {TARGET}");
        assert_eq!(
            objects(&document, "b"),
            json!({ "portal 192.0.2.2:3260": { "address": "192.0.2.2:3260", "group": 1 }, key.clone(): target(1) })
        );
        assert_eq!(
            objects(&document, "a"),
            json!({ "portal [2001:db8::1]:3260": { "address": "[2001:db8::1]:3260", "group": 2 }, key: target(2) })
        );
        assert_eq!(objects(&document, "c"), json!({}), "it has no portal");
    }

    #[test]
    fn one_gateway_is_a_target_of_its_own() {
        let document = with(&[("a", "192.0.2.1")]);
        assert!(objects(&document, "a")[format!("target {TARGET}")].get("gateways").is_none());
    }

    #[test]
    fn initiators_are_let_in_as_the_dashboard_says() {
        let mut document = with(&[("a", "192.0.2.1")]);
        let target = |document: &Document| objects(document, "a")[format!("target {TARGET}")].clone();
        let pair = "username=everybody&password=secretsecret";
        calls::auth_target(&mut document, TARGET, &form(pair)).unwrap();
        calls::auth_target(&mut document, TARGET, &form("action=disable_acl")).unwrap();
        let open = target(&document);
        assert_eq!(open["allow"], json!(["*"]));
        assert_eq!(open["chap"], json!([{ "user": "everybody", "secret_file": "/secretsecret" }]));

        calls::auth_target(&mut document, TARGET, &form("action=enable_acl")).unwrap();
        for client in ["iqn.c:one", "iqn.c:two"] {
            calls::new_client(&mut document, TARGET, client).unwrap();
        }
        let own = "username=client-one&password=oneoneoneone&mutual_username=targetuser&mutual_password=twotwotwotwo";
        calls::auth_client(&mut document, TARGET, "iqn.c:one", &form(own)).unwrap();
        calls::map_client(&mut document, TARGET, "iqn.c:one", &form("disk=rbd/i"), true).unwrap();
        let named = target(&document);
        assert!(named.get("allow").is_none() && named.get("chap").is_none());
        let [one, two] = [0, 1].map(|at| named["host"][at].clone());
        assert_eq!((&one["initiators"], &one["lun"]), (&json!(["iqn.c:one"]), &json!([{ "number": 3 }])));
        assert_eq!(one["chap"], json!([{ "user": "client-one", "secret_file": "/oneoneoneone" }]));
        assert_eq!(one["mutual_chap"], json!({ "user": "targetuser", "secret_file": "/twotwotwotwo" }));
        assert_eq!(two["lun"], json!([]), "it sees no disk");
        assert_eq!(two["chap"], open["chap"], "without users of its own, those of the target");
        assert!(one["name"].as_str().unwrap().starts_with("one-") && one["name"] != two["name"]);
    }

    #[test]
    fn names_of_hosts_are_those_that_the_api_takes() {
        let name = host_name(&format!("iqn.c:{}", "ä/x".repeat(70)));
        assert!(name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)), "{name}");
        assert_ne!(host_name("iqn.a:x"), host_name("iqn.b:x"));
    }
}
