//! Nodes of the tree and their paths.

use std::fmt;

use crate::failure::Failure;
use crate::model::{Model, ObjectName, Plugin};

/// A node. The names in it are those of things that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Root,
    Backstores,
    Plugin(Plugin),
    Object(ObjectName),
    Iscsi,
    Target(String),
    Tpg(String),
    Luns(String),
    Lun(String, u16),
    Acls(String),
    Acl(String, String),
    Mapped(String, String, u16),
    Portals(String),
    Portal(String, String),
}

impl Node {
    /// The node that a path leads to from this one.
    pub(crate) fn find(&self, path: &str, model: &Model) -> Result<Self, Failure> {
        let mut node = if path.starts_with('/') { Self::Root } else { self.clone() };
        for name in path.split('/').filter(|name| !["", "."].contains(name)) {
            node = if name == ".." { node.parent() } else { node.child(name, model)? };
        }
        Ok(node)
    }

    /// The nearest node on the way to this one that is still there.
    pub(crate) fn still_there(self, model: &Model) -> Self {
        let mut node = self;
        while Self::Root.find(&node.to_string(), model).as_ref() != Ok(&node) {
            node = node.parent();
        }
        node
    }

    fn child(&self, name: &str, model: &Model) -> Result<Self, Failure> {
        let is_it = |node: &Self| node.name() == name || matches!(node, Self::Tpg(_)) && name == "tpgt1";
        let found = self.children(model).into_iter().find(is_it);
        found.ok_or_else(|| {
            let path = self.to_string();
            Failure::new(format!("No such path {}/{name}", path.trim_end_matches('/')))
        })
    }

    pub(crate) fn parent(&self) -> Self {
        match self.clone() {
            Self::Root | Self::Backstores | Self::Iscsi => Self::Root,
            Self::Plugin(_) => Self::Backstores,
            Self::Object(name) => Self::Plugin(name.plugin),
            Self::Target(_) => Self::Iscsi,
            Self::Tpg(iqn) => Self::Target(iqn),
            Self::Luns(iqn) | Self::Acls(iqn) | Self::Portals(iqn) => Self::Tpg(iqn),
            Self::Lun(iqn, _) => Self::Luns(iqn),
            Self::Acl(iqn, _) => Self::Acls(iqn),
            Self::Mapped(iqn, initiator, _) => Self::Acl(iqn, initiator),
            Self::Portal(iqn, _) => Self::Portals(iqn),
        }
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Root => "/".into(),
            Self::Backstores => "backstores".into(),
            Self::Plugin(plugin) => plugin.folder().into(),
            Self::Object(name) => name.name.clone(),
            Self::Iscsi => "iscsi".into(),
            Self::Target(iqn) => iqn.clone(),
            Self::Tpg(_) => "tpg1".into(),
            Self::Luns(_) => "luns".into(),
            Self::Lun(_, number) => format!("lun{number}"),
            Self::Acls(_) => "acls".into(),
            Self::Acl(_, initiator) => initiator.clone(),
            Self::Mapped(.., number) => format!("mapped_lun{number}"),
            Self::Portals(_) => "portals".into(),
            Self::Portal(_, address) => address.clone(),
        }
    }

    /// The nodes below this one, in the order in which targetcli lists them.
    pub(crate) fn children(&self, model: &Model) -> Vec<Self> {
        let target = |iqn: &String| model.targets.get(iqn);
        match self {
            Self::Root => vec![Self::Backstores, Self::Iscsi],
            Self::Backstores => {
                let is_there = |plugin: &Plugin| {
                    *plugin != Plugin::User || model.objects.keys().any(|name| name.plugin == Plugin::User)
                };
                Plugin::ALL.into_iter().filter(is_there).map(Self::Plugin).collect()
            }
            Self::Plugin(plugin) => {
                let names = model.objects.keys().filter(|name| name.plugin == *plugin);
                sorted(names.cloned().map(Self::Object).collect())
            }
            Self::Iscsi => sorted(model.targets.keys().cloned().map(Self::Target).collect()),
            Self::Target(iqn) => vec![Self::Tpg(iqn.clone())],
            Self::Tpg(iqn) => vec![Self::Acls(iqn.clone()), Self::Luns(iqn.clone()), Self::Portals(iqn.clone())],
            Self::Luns(iqn) => {
                let luns = target(iqn).into_iter().flat_map(|target| target.luns.keys());
                luns.map(|number| Self::Lun(iqn.clone(), *number)).collect()
            }
            Self::Acls(iqn) => {
                let acls = target(iqn).into_iter().flat_map(|target| target.access.acls.keys());
                sorted(acls.map(|initiator| Self::Acl(iqn.clone(), initiator.clone())).collect())
            }
            Self::Acl(iqn, initiator) => {
                let acl = target(iqn).and_then(|target| Some(target.mapped(target.access.acls.get(initiator)?)));
                let numbers = acl.into_iter().flat_map(std::collections::BTreeMap::into_keys);
                numbers.map(|number| Self::Mapped(iqn.clone(), initiator.clone(), number)).collect()
            }
            Self::Portals(iqn) => {
                sorted(model.portals.keys().map(|address| Self::Portal(iqn.clone(), address.clone())).collect())
            }
            Self::Object(_) | Self::Lun(..) | Self::Mapped(..) | Self::Portal(..) => Vec::new(),
        }
    }
}

/// Sorts by names, and by the numbers at their ends.
fn sorted(mut nodes: Vec<Node>) -> Vec<Node> {
    nodes.sort_by_cached_key(|node| {
        let name = node.name();
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(name.len() - digits);
        (stem.to_owned(), number.parse::<u64>().unwrap_or_default(), name.clone())
    });
    nodes
}

/// The path from the root.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("/"),
            _ if self.parent() == Self::Root => write!(f, "/{}", self.name()),
            _ => write!(f, "{}/{}", self.parent(), self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StorageObject;

    fn model() -> Model {
        let mut model = Model::default();
        for name in ["d2", "d10", "d1"] {
            let name = ObjectName { plugin: Plugin::Block, name: name.into() };
            model
                .add_object(name.clone(), StorageObject { disk: name.to_string(), ..StorageObject::default() })
                .unwrap();
        }
        model.add_target("iqn.2003-01.org.example:a").unwrap();
        model.portals.insert("[::1]:3260".into(), lunette_api::objects::Document::new());
        model
    }

    #[test]
    fn paths_lead_up_and_down() {
        let model = model();
        let luns = Node::Luns("iqn.2003-01.org.example:a".into());
        for (from, path, expected) in [
            (&Node::Root, "iscsi", "/iscsi"),
            (&Node::Root, "/iscsi/iqn.2003-01.org.example:a/tpgt1/luns/", "/iscsi/iqn.2003-01.org.example:a/tpg1/luns"),
            (&luns, "../portals/[::1]:3260", "/iscsi/iqn.2003-01.org.example:a/tpg1/portals/[::1]:3260"),
            (&luns, "/", "/"),
            (&luns, "../../../..", "/"),
            (&luns, "/backstores/block/./d10", "/backstores/block/d10"),
            (&luns, "", "/iscsi/iqn.2003-01.org.example:a/tpg1/luns"),
        ] {
            assert_eq!(from.find(path, &model).map(|node| node.to_string()), Ok(expected.into()), "{path}");
        }
        let error = luns.find("/backstores/block/e", &model).unwrap_err();
        assert_eq!(error.to_string(), "No such path /backstores/block/e");
        assert_eq!(Node::Root.find("tape", &model).unwrap_err().to_string(), "No such path /tape");
    }

    #[test]
    fn numbers_at_the_end_are_sorted_as_numbers() {
        let names: Vec<String> = Node::Plugin(Plugin::Block).children(&model()).iter().map(Node::name).collect();
        assert_eq!(names, ["d1", "d2", "d10"]);
    }

    #[test]
    fn what_is_gone_leads_to_what_is_left() {
        let mut model = model();
        let luns = Node::Luns("iqn.2003-01.org.example:a".into());
        assert_eq!(luns.clone().still_there(&model), luns);
        model.remove_target("iqn.2003-01.org.example:a").unwrap();
        assert_eq!(luns.still_there(&model), Node::Iscsi);
    }
}
