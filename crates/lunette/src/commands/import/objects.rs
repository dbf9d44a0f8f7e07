//! `--conf-d`: targets and portals in files of their own, as the API keeps them.

use std::path::Path;

use lunette_api::{Document, Objects, Tables};

use super::files::NewFile;
use crate::address;
use crate::config::Listen;
use crate::failure::Failure;
use crate::output;

/// The objects of a configuration as new files of a folder, and the rest of it.
pub(super) fn files(folder: &Path, configuration: &str) -> Result<(String, Vec<NewFile>), Failure> {
    let (rest, objects) = split(configuration).map_err(|why| unusable(folder, &why))?;
    let files = Objects::default().file_changes(&objects).map_err(|problem| unusable(folder, &problem.detail))?;
    for portal in rest.get("portal").and_then(|list| list.as_array()).into_iter().flatten() {
        let address = portal.get("address").and_then(|address| address.as_str()).unwrap_or_default();
        output::note(format_args!(
            "left for the main file: portal {address}; portals of the API have addresses that are known now"
        ));
    }
    let rest = toml::to_string(&rest).map_err(|error| unusable(folder, &error.to_string()))?;
    let files = files.into_iter().map(|change| NewFile {
        path: folder.join(&change.file),
        content: change.content.unwrap_or_default(),
        mode: 0o640,
    });
    Ok((rest, files.collect()))
}

fn unusable(folder: &Path, why: &str) -> Failure {
    Failure::configuration(format!("{}: {why}", folder.display()))
}

/// Splits a configuration into the keys of the main file and the objects.
fn split(configuration: &str) -> Result<(toml::Table, Objects), String> {
    let mut rest: toml::Table = toml::from_str(configuration).map_err(|error| error.to_string())?;
    let mut tables = toml::Table::new();
    for key in ["portal", "target"] {
        tables.extend(rest.remove_entry(key));
    }
    let mut tables: Tables = tables.try_into().map_err(|error: toml::de::Error| error.to_string())?;
    let (mut portals, mut unknown) = (Vec::new(), Vec::new());
    for portal in tables.portals {
        match addresses(&portal) {
            found if found.is_empty() => unknown.push(portal),
            found => portals.extend(found.into_iter().map(|address| with_address(&portal, address))),
        }
    }
    if !unknown.is_empty() {
        let unknown = toml::Value::try_from(unknown).map_err(|error| error.to_string())?;
        rest.insert("portal".into(), unknown);
    }
    tables.portals = portals;
    Ok((rest, Objects::from_tables(tables).map_err(|problem| problem.detail)?))
}

/// The addresses of a portal with their port, one for each object. A name has none: what it means changes.
fn addresses(portal: &Document) -> Vec<String> {
    let text = portal.get("address").and_then(|address| address.as_str()).unwrap_or_default();
    if address::is_name_of_host(text) {
        return Vec::new();
    }
    let listen = text.parse::<Listen>().map(|listen| listen.addresses).unwrap_or_default();
    listen.iter().map(ToString::to_string).collect()
}

fn with_address(portal: &Document, address: String) -> Document {
    let mut portal = portal.clone();
    portal.insert("address".into(), address.into());
    portal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portals_without_an_address_stay_in_the_main_file() {
        let portal = |address: &str| format!("[[portal]]\naddress = \"{address}\"\ngroup = 2\n");
        for (address, objects, rest) in [
            ("192.0.2.1", &["192.0.2.1:3260"][..], ""),
            ("*:860", &["0.0.0.0:860", "[::]:860"], ""),
            ("[fe80::1%1]:860", &["[fe80::1%1]:860"], ""),
            ("localhost", &[], "localhost"),
            ("no-such-host.invalid:860", &[], "no-such-host.invalid:860"),
            ("[fe80::1%no-such-zone]:860", &[], "[fe80::1%no-such-zone]:860"),
        ] {
            let text = format!("cores = 2\n{}[[target]]\nname = \"iqn.a\"\n", portal(address));
            let (main, found) = split(&text).unwrap();
            let files = Objects::default().file_changes(&found).unwrap();
            let mut files: Vec<_> = files.into_iter().map(|change| change.file).collect();
            files.sort_unstable();
            let expected = objects.iter().map(|address| format!("portal-{address}.toml"));
            assert_eq!(files, expected.chain(["target-iqn.a.toml".into()]).collect::<Vec<_>>(), "{address}");
            let left = if rest.is_empty() { String::new() } else { portal(rest) };
            assert_eq!(main, format!("cores = 2\n{left}").parse().unwrap(), "{address}");
        }
    }
}
