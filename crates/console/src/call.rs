//! Requests of the API as buttons and forms.

use std::borrow::Cow;

use lunette_api::client;
use lunette_api::objects::etag;
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// The characters that a segment of a path keeps (RFC 3986 section 3.3), as far as names have them.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// A name as a segment of the path of a page.
pub(crate) fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// An object of the API, by the parts of its path.
pub(crate) struct Place<'a>(pub(crate) &'a [&'a str]);

impl Place<'_> {
    /// The path of the object in a request.
    pub(crate) fn url(&self) -> String {
        client::path(self.0)
    }

    /// The name of the object for `lunette ctl`.
    fn name(&self) -> String {
        self.0.join("/")
    }
}

/// A request of the API, and the line of `lunette ctl` that does the same.
pub(crate) struct Call {
    verb: Verb,
    /// The path of the request; `{name}` in it stands for a field of the form.
    url: String,
    line: Line,
    /// The headers of its precondition, as JSON.
    condition: Option<String>,
    confirm: Option<String>,
    /// The page that follows, if not the same again.
    then: Option<String>,
}

#[derive(Clone, Copy)]
enum Verb {
    Put,
    Delete,
    Post,
}

/// A line of `lunette ctl`.
enum Line {
    Whole(String),
    /// `add NAME`, which `console.js` completes with the fields of the form.
    Add(String),
    /// `replace NAME`, likewise.
    Replace(String),
    /// `resize NAME`, which it completes with the size.
    Resize(String),
}

impl Call {
    fn new(verb: Verb, url: String, line: Line) -> Self {
        Self { verb, url, line, condition: None, confirm: None, then: None }
    }

    /// Replaces an object.
    pub(crate) fn replace(place: &Place<'_>) -> Self {
        Self::new(Verb::Put, place.url(), Line::Replace(place.name()))
    }

    /// Adds an object whose name is a field of the form.
    pub(crate) fn add(list: &Place<'_>, field: &str) -> Self {
        let with_field = |list: String| format!("{list}/{{{field}}}");
        let mut call = Self::new(Verb::Put, with_field(list.url()), Line::Add(with_field(list.name())));
        call.condition = Some(serde_json::json!({ "If-None-Match": "*" }).to_string());
        call
    }

    /// Replaces a logical unit by the same with another `create`.
    pub(crate) fn resize(place: &Place<'_>) -> Self {
        Self::new(Verb::Put, place.url(), Line::Resize(place.name()))
    }

    /// Removes an object.
    pub(crate) fn remove(place: &Place<'_>) -> Self {
        Self::new(Verb::Delete, place.url(), Line::Whole(format!("lunette ctl rm {}", word(&place.name()))))
    }

    /// Ends a session.
    pub(crate) fn kick(session: u16) -> Self {
        let number = session.to_string();
        Self::new(Verb::Delete, Place(&["sessions", &number]).url(), Line::Whole(format!("lunette ctl kick {number}")))
    }

    /// Reads all blocks of a logical unit once, as a job.
    pub(crate) fn scrub(place: &Place<'_>) -> Self {
        let line = Line::Whole(format!("lunette ctl scrub {}", word(&place.name())));
        Self::new(Verb::Post, format!("{}/actions/scrub", place.url()), line).then("/console/jobs")
    }

    /// Creates a volume of a pool, whose name is a field of the form.
    pub(crate) fn create_volume(pool: &str) -> Self {
        let url = format!("{}/{{name}}", Place(&["volumes", pool]).url());
        Self::new(Verb::Post, url, Line::Whole(format!("lunette volume create {}/NAME --size SIZE", word(pool))))
    }

    /// Creates a clone of a snapshot, whose name is a field of the form.
    pub(crate) fn clone_volume(pool: &str, origin: &str) -> Self {
        let url = format!("{}/{{name}}", Place(&["volumes", pool]).url());
        let line = format!("lunette volume clone {} {}/NAME", word(&format!("{pool}/{origin}")), word(pool));
        Self::new(Verb::Post, url, Line::Whole(line))
    }

    /// Takes a snapshot of a volume, whose name is a field of the form.
    pub(crate) fn snapshot(volume: &str) -> Self {
        let line = Line::Whole(format!("lunette volume snapshot NAME {}", word(volume)));
        Self::new(Verb::Post, Place(&["snapshots"]).url(), line)
    }

    /// Removes a volume, or a snapshot of it.
    pub(crate) fn remove_volume(place: &Place<'_>) -> Self {
        Self::new(Verb::Delete, place.url(), Line::Whole(format!("lunette volume rm {}", word(&volume_name(place)))))
    }

    /// Gives a volume the content of a snapshot, as a job.
    pub(crate) fn roll_back(snapshot: &Place<'_>) -> Self {
        let line = Line::Whole(format!("lunette volume rollback {}", word(&volume_name(snapshot))));
        Self::new(Verb::Post, format!("{}/actions/rollback", snapshot.url()), line).then("/console/jobs")
    }

    /// Cancels a job.
    pub(crate) fn cancel(job: u64) -> Self {
        let number = job.to_string();
        let url = format!("{}/actions/cancel", Place(&["jobs", &number]).url());
        Self::new(Verb::Post, url, Line::Whole(format!("lunette ctl jobs {number} --cancel")))
    }

    /// Says what a replacement of all objects would change.
    pub(crate) fn plan() -> Self {
        let line = Line::Whole("lunette ctl plan --prune -f FILE".into());
        Self::new(Verb::Post, "/v1/config:plan".into(), line)
    }

    /// Replaces all objects.
    pub(crate) fn apply() -> Self {
        let line = Line::Whole("lunette ctl apply --prune -f FILE".into());
        Self::new(Verb::Put, "/v1/config".into(), line)
    }

    /// Only when the object still is what the page shows.
    pub(crate) fn of(mut self, shown: &Value) -> Self {
        self.condition = Some(serde_json::json!({ "If-Match": etag(shown) }).to_string());
        self
    }

    /// Asks this question before the call is made.
    pub(crate) fn confirm(mut self, question: String) -> Self {
        self.confirm = Some(question);
        self
    }

    /// Goes to another page after it.
    pub(crate) fn then(mut self, page: &str) -> Self {
        self.then = Some(page.into());
        self
    }

    /// A button that sends it, beside its line. `id` is one of its own on the page, and the same whenever the page is
    /// loaded.
    pub(crate) fn button(&self, id: &str, label: &str) -> Markup {
        html! { div.call { (self.bare_button(id, label, false)) (self.line()) } }
    }

    /// A button of a form that sends what the form holds.
    pub(crate) fn submit(&self, id: &str, label: &str) -> Markup {
        html! { div.call { (self.bare_button(id, label, true)) (self.line()) } }
    }

    fn line(&self) -> Markup {
        let (verb, name) = match &self.line {
            Line::Whole(line) => return html! { code.ctl { (line) } },
            Line::Add(name) => ("add", name),
            Line::Replace(name) => ("replace", name),
            Line::Resize(name) => ("resize", name),
        };
        html! { code.ctl data-ctl=(verb) data-name=(name) { "lunette ctl " (verb) " " (word(name)) } }
    }

    fn bare_button(&self, id: &str, label: &str, has_document: bool) -> Markup {
        let [put, delete, post] = [Verb::Put, Verb::Delete, Verb::Post]
            .map(|verb| (verb as u8 == self.verb as u8).then_some(self.url.as_str()));
        html! {
            button id=(id) type=(if has_document { "submit" } else { "button" })
                hx-put=[put] hx-delete=[delete] hx-post=[post] hx-swap="none" hx-params="none"
                hx-ext=[has_document.then_some("document")] hx-validate=[has_document.then_some("true")]
                hx-headers=[&self.condition] hx-confirm=[&self.confirm] data-then=[&self.then]
                class=[matches!(self.verb, Verb::Delete).then_some("danger")] { (label) }
        }
    }
}

/// The name of a volume or snapshot for `lunette volume`.
fn volume_name(Place(parts): &Place<'_>) -> String {
    match parts {
        [_, pool, volume, _, snapshot] => format!("{pool}/{volume}@{snapshot}"),
        [_, rest @ ..] => rest.join("/"),
        [] => String::new(),
    }
}

/// A form whose buttons [submit](Call::submit) `document` with the fields put in.
pub(crate) fn form(document: &Value, content: &Markup) -> Markup {
    html! { form data-document=(document) { (content) } }
}

/// The type of a field in the document.
#[derive(Clone, Copy)]
pub(crate) enum As {
    Text,
    Number,
    /// Words between spaces, commas or line ends.
    List,
    /// A part of the path alone.
    Path,
}

/// An input with its label. Empty, its key is left out.
pub(crate) struct Field<'a> {
    pub(crate) name: &'a str,
    pub(crate) label: &'a str,
    pub(crate) kind: As,
    pub(crate) value: &'a str,
    pub(crate) hint: &'a str,
    pub(crate) required: bool,
}

impl Field<'_> {
    pub(crate) fn show(&self) -> Markup {
        let kind = match self.kind {
            As::Text => Some("text"),
            As::Number => Some("number"),
            As::List => Some("list"),
            As::Path => None,
        };
        html! {
            label { (self.label)
                input name=(self.name) data-as=[kind] value=(self.value) placeholder=(self.hint) required[self.required]
                    inputmode=[matches!(self.kind, As::Number).then_some("numeric")]
                    autocomplete="off" autocapitalize="none" spellcheck="false";
            }
        }
    }
}

/// A box that puts `value`, which is JSON, into the document when it is checked.
pub(crate) fn check(name: &str, label: &str, value: &str, is_checked: bool) -> Markup {
    html! { label.check { input type="checkbox" name=(name) data-as="json" value=(value) checked[is_checked]; (label) } }
}

/// A text as one word of a shell.
fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "@%+:,./=_-".contains(char);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''")).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_text_back() {
        for text in
            ["iqn.2026-11.org.example:db", "", "a b", "$(reboot)", "it's", "`x`", "\\", "[::1]:3260", "ä", "~", "a=b"]
        {
            let mut command = std::process::Command::new("sh");
            let output = command.args(["-c", &format!("printf %s {}", word(text))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
        assert_eq!(word("iqn.2026-11.org.example:db/0"), "iqn.2026-11.org.example:db/0");
    }
}
