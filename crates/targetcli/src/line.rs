//! A line of targetcli's language: `[PATH] [COMMAND] [PARAMETER…] [NAME=VALUE…]`.

use crate::failure::Failure;
use crate::limits::MAX_LINE_BYTES;

/// A command with its parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The place that the command is for; empty for the current one.
    pub(crate) path: String,
    /// The command; `cd` when there is none.
    pub(crate) command: String,
    /// Parameters by their order.
    pub(crate) positional: Vec<String>,
    /// Parameters by their names.
    pub(crate) named: Vec<(String, String)>,
}

impl Line {
    /// Reads a line; `None` for a comment, and for a line without a word.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, Failure> {
        if text.len() > MAX_LINE_BYTES {
            return Err(Failure::new(format!("a line has {MAX_LINE_BYTES} bytes at most")));
        }
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none_or(|word| word.starts_with('#')) {
            return Ok(None);
        }
        let mut line = Self::default();
        if let Some(path) = words.next_if(|word| is_path(word)) {
            line.path = path.into();
        }
        match words.next() {
            Some(command) if command.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                line.command = command.into();
            }
            Some(other) => return Err(Failure::new(format!("Command not found {other}"))),
            None => {
                line.command = "cd".into();
                line.positional.push(".".into());
            }
        }
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if is_name(name) => line.named.push((name.into(), value.into())),
                _ => line.positional.push(word.into()),
            }
        }
        Ok(Some(line))
    }

    /// The values of the parameters `names`, of which the first `required` have to be there.
    pub(crate) fn bind<const N: usize>(&self, names: [&str; N], required: usize) -> Result<[Option<&str>; N], Failure> {
        let mut values = [None; N];
        for (value, word) in values.iter_mut().zip(&self.positional) {
            *value = Some(word.as_str());
        }
        let unknown: Vec<&str> =
            self.named.iter().map(|(name, _)| name.as_str()).filter(|name| !names.contains(name)).collect();
        let mut twice = None;
        for (name, text) in &self.named {
            if let Some(place) = names.iter().position(|known| known == name) {
                twice = twice.or(values[place].is_some().then_some(names[place]));
                values[place] = Some(text.as_str());
            }
        }
        let mut missing: Vec<&str> = names
            .iter()
            .zip(&values)
            .take(required)
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| *name)
            .collect();
        missing.sort_unstable();
        match missing[..] {
            [] => {}
            [one] => return Err(Failure::new(format!("Missing required parameter {one}"))),
            _ => return Err(Failure::new(format!("Missing required parameters {}", quoted(&missing)))),
        }
        match unknown[..] {
            [] => {}
            [one] => return Err(Failure::new(format!("Unexpected keyword parameter '{one}'."))),
            _ => return Err(Failure::new(format!("Unexpected keyword parameters {}.", quoted(&unknown)))),
        }
        if let Some(name) = twice {
            return Err(Failure::new(format!("Duplicate parameter {name}.")));
        }
        let count = self.positional.len() + self.named.len();
        if count > N {
            let limit = if required == N { "exactly" } else { "at most" };
            return Err(Failure::new(format!("Got {count} positionnal parameters, expected {limit} {N}.")));
        }
        Ok(values)
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

fn is_path(word: &str) -> bool {
    // A value may be a path, too: `dev=/dev/sda`.
    let before = word.split('/').next().unwrap_or_default();
    [".", ".."].contains(&word) || word.contains('/') && !before.contains('=')
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Line {
        Line::parse(text).unwrap().unwrap()
    }

    #[test]
    fn a_path_may_stand_before_the_command() {
        for (text, path, command) in [
            ("/iscsi create iqn.a", "/iscsi", "create"),
            ("create iqn.a", "", "create"),
            ("iscsi/ ls", "iscsi/", "ls"),
            (".. ls", "..", "ls"),
            ("  /  saveconfig ", "/", "saveconfig"),
            ("/iscsi/iqn.a/tpg1", "/iscsi/iqn.a/tpg1", "cd"),
        ] {
            let line = parsed(text);
            assert_eq!((line.path.as_str(), line.command.as_str()), (path, command), "{text}");
        }
        let create = parsed("create name=d dev=/dev/sda true");
        assert_eq!(create.named, [("name".into(), "d".into()), ("dev".into(), "/dev/sda".into())]);
        assert_eq!(create.positional, ["true"]);
    }

    #[test]
    fn comments_and_blank_lines_are_nothing() {
        for text in ["", "  \t ", "# create target", "#create", "  # set attribute a=1"] {
            assert_eq!(Line::parse(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn parameters_have_names_and_an_order() {
        const NAMES: [&str; 3] = ["name", "dev", "wwn"];
        let bound = |text: &str| {
            let line = parsed(text);
            line.bind(NAMES, 2)
                .map(|values| values.map(|value| value.map(str::to_owned)))
                .map_err(|error| error.to_string())
        };
        let expected = [Some("d".to_owned()), Some("/dev/sda".to_owned()), None];
        assert_eq!(bound("create d /dev/sda"), Ok(expected.clone()));
        assert_eq!(bound("create dev=/dev/sda name=d"), Ok(expected.clone()));
        assert_eq!(bound("create d dev=/dev/sda"), Ok(expected));
        for (text, error) in [
            ("create d", "Missing required parameter dev"),
            ("create", "Missing required parameters 'dev', 'name'"),
            ("create d e colour=red", "Unexpected keyword parameter 'colour'."),
            ("create d e name=f", "Duplicate parameter name."),
            ("create d e f g", "Got 4 positionnal parameters, expected at most 3."),
        ] {
            assert_eq!(bound(text), Err(error.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_line_or_refused(text in ".{0,200}") {
            if let Ok(Some(line)) = Line::parse(&text) {
                let _ = line.bind(["a", "b"], 1);
                prop_assert!(!line.command.is_empty());
            }
        }

        #[test]
        fn what_is_written_is_read(path in "(/[a-z0-9.:-]{1,9}){0,3}", command in "[a-z]{2,9}", words in
            proptest::collection::vec("[a-z0-9.:/-]{1,9}", 0..4), named in proptest::collection::vec(("[a-z]{1,5}", "[!-~]{0,9}"), 0..4)) {
            let pairs: Vec<String> = named.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let text = format!("{path} {command} {} {}", words.join(" "), pairs.join(" "));
            prop_assert_eq!(Line::parse(&text), Ok(Some(Line { path, command, positional: words, named })));
        }
    }
}
