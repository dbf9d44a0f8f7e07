//! The table `adapters`: sockets at which tools of other targets manage this one.

use std::path::PathBuf;

use serde::Deserialize;

use super::Config;

/// The values of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Adapters {
    /// The socket at which tgtadm finds tgtd.
    pub(crate) tgt: Option<PathBuf>,
}

impl Adapters {
    /// Checks that the adapters have what they need.
    pub(super) fn check(&self, config: &Config) -> Result<(), String> {
        let Some(path) = &self.tgt else { return Ok(()) };
        if !path.is_absolute() {
            return Err(format!("tgt: {}: write the whole path, from /", path.display()));
        }
        match (&config.api, &config.state) {
            (None, _) => Err("tgt is a client of the API; add [api] with a place to listen at".into()),
            (Some(_), None) => {
                Err("tgt keeps numbers of targets and passwords beside the state; write the path of a file as state"
                    .into())
            }
            (Some(_), Some(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_has_what_it_needs() {
        let tgt = "[adapters]\ntgt = \"/run/tgtd/socket.0\"\n";
        let api = "[api]\nlisten = [\"unix:/run/api.sock\"]\n";
        for (text, expected) in [
            (tgt.to_owned(), Some("add [api]")),
            (format!("{api}{tgt}"), Some("as state")),
            (format!("state = \"/s\"\n{api}[adapters]\ntgt = \"socket.0\""), Some("from /")),
            (format!("state = \"/s\"\n{api}{tgt}"), None),
            (format!("{api}[adapters]"), None),
        ] {
            let config: Config = toml::from_str(&text).unwrap();
            let refused = config.adapters.check(&config).err();
            assert_eq!(refused.is_some(), expected.is_some(), "{text}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(expected.unwrap_or_default()), "{text}");
        }
    }
}
