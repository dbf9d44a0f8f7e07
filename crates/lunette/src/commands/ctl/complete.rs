//! `lunette ctl complete`: the objects that a word of a shell may become.

use lunette_api::client;
use serde_json::Value;

use super::Server;
use crate::failure::Failure;
use crate::output;

/// Words that are printed. A shell shows no more.
const MAX_WORDS: usize = 1000;

impl Server {
    /// Prints the paths that begin with `word`, one level further.
    pub(super) fn complete(&self, word: &str) -> Result<(), Failure> {
        let begin = word.rsplit_once('/').map_or("", |(begin, _)| begin);
        let words = match begin.split('/').collect::<Vec<_>>().as_slice() {
            [""] => ["targets/", "portals/", "sessions", "luns", "jobs"].map(String::from).to_vec(),
            ["targets" | "portals"] => self.below(begin, &[begin], "name")?,
            ["sessions" | "jobs"] => self.below(begin, &[begin], "id")?,
            ["targets", _] => ["luns", "hosts"].map(|list| format!("{begin}/{list}/")).to_vec(),
            ["targets", target, "luns"] => self.below(begin, &["targets", target, "luns"], "number")?,
            ["targets", target, "hosts"] => self.below(begin, &["targets", target, "hosts"], "name")?,
            _ => Vec::new(),
        };
        let fitting = words.iter().filter(|one| one.starts_with(word));
        fitting.take(MAX_WORDS).try_for_each(output::line)
    }

    /// The words in a list, by this key.
    fn below(&self, begin: &str, list: &[&str], key: &str) -> Result<Vec<String>, Failure> {
        let entries = self.get(&client::path(list))?.value;
        let name = |entry: &Value| match &entry[key] {
            Value::String(name) => Some(format!("{begin}/{name}")),
            Value::Number(number) => Some(format!("{begin}/{number}")),
            _ => None,
        };
        Ok(entries.as_array().into_iter().flatten().filter_map(name).collect())
    }
}
