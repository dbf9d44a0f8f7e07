//! Commands: a line is run at a node of the tree, changes the tree and answers.
//!
//! A command is a function of the tree, so it can be repeated when another client has changed the server meanwhile.

use crate::commands::{backstores, groups, info, root, targets};
use crate::failure::Failure;
use crate::line::Line;
use crate::listing;
use crate::model::Model;
use crate::node::Node;

/// A path as the machine has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// A block device, and whether it is read-only.
    BlockDevice(bool),
    /// A file with its length.
    File(u64),
    Other,
}

/// The machine and the server, as far as commands ask for them.
pub(crate) trait World {
    /// Looks at a path.
    fn look_at(&self, path: &str) -> Found;
    /// A serial number that no other disk has.
    fn new_serial(&self) -> String;
    /// The sessions, as the API lists them.
    fn sessions(&self) -> Result<Vec<serde_json::Value>, Failure>;
    /// The content of a saved configuration; `None` when it is not there.
    fn read_saved(&self, file: &str) -> Result<Option<String>, Failure>;
    /// Saves the tree, in a file or where it is saved by default. Returns the name of the file.
    fn save(&self, file: Option<&str>, model: &Model) -> Result<String, Failure>;
    /// Where the configuration is saved by default.
    fn saved_file(&self) -> String;
}

/// A command at a node.
pub(crate) struct Call<'a> {
    pub(crate) node: Node,
    pub(crate) line: &'a Line,
    pub(crate) model: &'a mut Model,
    pub(crate) world: &'a dyn World,
    /// The width of the terminal.
    pub(crate) columns: usize,
    pub(crate) reply: Reply,
}

/// The answer of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The lines that it prints.
    pub(crate) lines: Vec<String>,
    /// The node that is the current one from now on.
    pub(crate) go: Option<Node>,
    pub(crate) is_exit: bool,
    /// The command has changed what was possible, and this could not be.
    pub(crate) failure: Option<Failure>,
}

impl Call<'_> {
    /// Prints a line.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.reply.lines.push(text.into());
    }

    /// Goes to a new node, if the preferences say so.
    pub(crate) fn made(&mut self, node: Node) {
        if self.model.prefers("auto_cd_after_create") {
            self.say(format!("Entering new node {node}"));
            self.reply.go = Some(node);
        }
    }
}

/// A parameter that is `true` or `false`.
pub(crate) fn is(value: Option<&str>, default: bool) -> Result<bool, Failure> {
    match value {
        None => Ok(default),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(text) => Err(Failure::new(format!("Syntax error, '{text}' is not true|false."))),
    }
}

/// Runs a line at the current node.
pub(crate) fn run(
    line: &Line,
    current: &Node,
    model: &mut Model,
    world: &dyn World,
    columns: usize,
) -> Result<Reply, Failure> {
    let node = current.find(&line.path, model)?;
    let mut call = Call { node, line, model, world, columns, reply: Reply::default() };
    execute(&mut call)?;
    Ok(call.reply)
}

/// The commands that every node has.
const COMMON: [&str; 9] = ["ls", "cd", "pwd", "get", "set", "status", "help", "refresh", "exit"];

fn execute(call: &mut Call<'_>) -> Result<(), Failure> {
    let command = call.line.command.as_str();
    match (command, call.node.clone()) {
        ("ls", _) => ls(call),
        ("cd", _) => cd(call),
        ("pwd", node) => {
            call.line.bind([], 0)?;
            call.say(node.to_string());
            Ok(())
        }
        ("status", node) => {
            call.line.bind([], 0)?;
            let (description, _) = listing::summary(&node, call.model);
            call.say(format!("Status for {node}: {description}"));
            Ok(())
        }
        ("refresh", _) => call.line.bind([], 0).map(|[]| ()),
        ("exit", _) => {
            call.reply.is_exit = true;
            Ok(())
        }
        ("help", node) => {
            help(call, &node);
            Ok(())
        }
        ("get", _) => groups::get(call),
        ("set", _) => groups::set(call),
        ("info", node) if own_commands(&node).contains(&"info") => info::info(call),
        ("saveconfig", Node::Root) => root::saveconfig(call),
        ("restoreconfig", Node::Root) => root::restoreconfig(call),
        ("clearconfig", Node::Root) => root::clearconfig(call),
        ("version", Node::Root) => root::version(call),
        ("sessions", Node::Root) => root::sessions(call),
        ("create", Node::Plugin(plugin)) => backstores::create(call, plugin),
        ("delete", Node::Plugin(plugin)) => backstores::delete(call, plugin),
        ("create", Node::Iscsi) => targets::create(call),
        ("delete", Node::Iscsi) => targets::delete(call),
        ("create", Node::Target(iqn)) => targets::create_tpg(call, &iqn),
        ("delete", Node::Target(iqn)) => targets::delete_tpg(call, &iqn),
        ("enable", Node::Tpg(_)) => targets::enable(call),
        ("disable", Node::Tpg(_)) => targets::disable(call),
        ("create", Node::Luns(iqn)) => targets::create_lun(call, &iqn),
        ("delete", Node::Luns(iqn)) => targets::delete_lun(call, &iqn),
        ("create", Node::Acls(iqn)) => targets::create_acl(call, &iqn),
        ("delete", Node::Acls(iqn)) => targets::delete_acl(call, &iqn),
        ("create", Node::Acl(iqn, initiator)) => targets::map(call, &iqn, &initiator),
        ("delete", Node::Acl(iqn, initiator)) => targets::unmap(call, &iqn, &initiator),
        ("create", Node::Portals(iqn)) => targets::create_portal(call, &iqn),
        ("delete", Node::Portals(iqn)) => targets::delete_portal(call, &iqn),
        ("enable_iser" | "enable_offload", Node::Portal(..)) => targets::enable_adapter(call),
        _ => Err(Failure::new(format!("Command not found {command}"))),
    }
}

/// The commands of a node beside [`COMMON`].
fn own_commands(node: &Node) -> &'static [&'static str] {
    match node {
        Node::Root => &["clearconfig", "restoreconfig", "saveconfig", "sessions", "version"],
        Node::Backstores => &[],
        Node::Plugin(_) | Node::Luns(_) | Node::Acls(_) | Node::Portals(_) => &["create", "delete"],
        Node::Iscsi | Node::Target(_) | Node::Acl(..) => &["create", "delete", "info"],
        Node::Tpg(_) => &["disable", "enable", "info"],
        Node::Object(_) | Node::Lun(..) | Node::Mapped(..) => &["info"],
        Node::Portal(..) => &["enable_iser", "enable_offload", "info"],
    }
}

fn help(call: &mut Call<'_>, node: &Node) {
    let mut commands: Vec<&str> = COMMON.iter().chain(own_commands(node)).copied().collect();
    commands.sort_unstable();
    call.say("[PATH] COMMAND [PARAMETER...] [NAME=VALUE...]");
    call.say(format!("Commands of {node}: {}", commands.join(" ")));
}

fn ls(call: &mut Call<'_>) -> Result<(), Failure> {
    let [path, depth] = call.line.bind(["path", "depth"], 0)?;
    let node = call.node.find(path.unwrap_or_default(), call.model)?;
    let depth = depth.unwrap_or("0").parse();
    let depth = depth.map_err(|_| Failure::new("The tree depth must be a number."))?;
    call.say(listing::tree(&node, depth, call.columns, call.model));
    Ok(())
}

fn cd(call: &mut Call<'_>) -> Result<(), Failure> {
    let [path] = call.line.bind(["path"], 0)?;
    call.reply.go = Some(call.node.find(path.unwrap_or("/"), call.model)?);
    Ok(())
}

#[cfg(test)]
mod tests;
