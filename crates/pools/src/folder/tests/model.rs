//! Files of a machine that loses its power, and of a file system that fills up.
//!
//! Names and contents have a volatile and a durable state. After a power cut, each operation that was not synchronized
//! has reached the medium or not, whatever came before it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};

use lunette_store::Extent;

use crate::folder::files::{Files, Kind};
use crate::folder::layout;
use crate::pool::PoolSpace;

/// Bytes of a block of an image.
pub(super) const BLOCK: u64 = 512;

/// The files. A clone is the same machine.
#[derive(Debug, Clone)]
pub(super) struct Model(Arc<Mutex<Machine>>);

/// An open image, by the number of its node.
#[derive(Debug)]
pub(super) struct Open(usize);

/// The names in folders, with the nodes that they lead to.
type Names = BTreeMap<(usize, String), usize>;

/// The blocks of an image; a hole is none.
type Blocks = Vec<Option<Block>>;

#[derive(Debug, Clone)]
struct Machine {
    nodes: Vec<Node>,
    names: Names,
    durable: Names,
    log: Vec<NameChange>,
    next_place: u64,
    /// Bytes of a block, as the file system says.
    block_bytes: u64,
    /// Operations until the power is cut.
    power: usize,
    is_cut: bool,
    /// Operations that need space, until one finds none.
    until_full: Option<usize>,
    /// Operations until one fails.
    until_failure: Option<usize>,
}

#[derive(Debug, Clone)]
enum Node {
    Folder,
    Text(String),
    Image { now: Blocks, durable: Blocks, log: Vec<ContentChange>, is_fixed: bool },
}

/// Content in one place of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    place: u64,
    value: u8,
}

#[derive(Debug, Clone)]
struct NameChange {
    from: Option<(usize, String)>,
    to: Option<(usize, String)>,
    node: usize,
    /// The folders that have not been synchronized since.
    unsynced: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy)]
enum ContentChange {
    Len(usize),
    Block(usize, Option<Block>),
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        if let Some(from) = &self.from
            && names.get(from) == Some(&self.node)
        {
            names.remove(from);
        }
        if let Some(to) = &self.to {
            names.insert(to.clone(), self.node);
        }
    }
}

impl ContentChange {
    fn apply(self, blocks: &mut Blocks) {
        match self {
            Self::Len(len) => blocks.resize(len, None),
            Self::Block(at, block) => {
                if let Some(old) = blocks.get_mut(at) {
                    *old = block;
                }
            }
        }
    }
}

impl Model {
    /// An empty pool.
    pub(super) fn new() -> Self {
        let names: Names = [((0, layout::WORK.to_owned()), 1)].into();
        Self(Arc::new(Mutex::new(Machine {
            nodes: vec![Node::Folder, Node::Folder],
            durable: names.clone(),
            names,
            log: Vec::new(),
            next_place: 1,
            block_bytes: BLOCK,
            power: usize::MAX,
            is_cut: false,
            until_full: None,
            until_failure: None,
        })))
    }

    /// Lets the file system say that blocks are longer than they are.
    pub(super) fn have_blocks_of(&self, block_bytes: u64) {
        self.machine().block_bytes = block_bytes;
    }

    /// Lets the power last for this many operations.
    pub(super) fn cut_after(&self, operations: usize) {
        self.machine().power = operations;
    }

    /// Whether an operation has met the cut.
    pub(super) fn is_cut(&self) -> bool {
        self.machine().is_cut
    }

    /// Lets the file system be full once, after this many operations that need space.
    pub(super) fn be_full_after(&self, operations: usize) {
        self.machine().until_full = Some(operations);
    }

    /// Whether the file system is still to be full.
    pub(super) fn will_be_full(&self) -> bool {
        self.machine().until_full.is_some()
    }

    /// Lets one operation fail, after this many others.
    pub(super) fn fail_after(&self, operations: usize) {
        self.machine().until_failure = Some(operations);
    }

    /// Whether an operation is still to fail.
    pub(super) fn will_fail(&self) -> bool {
        self.machine().until_failure.is_some()
    }

    /// The machine after the cut; `has_reached` tells of each operation that was not synchronized.
    pub(super) fn after_cut(&self, mut has_reached: impl FnMut() -> bool) -> Self {
        let mut machine = self.machine().clone();
        let mut names = machine.durable.clone();
        for change in &machine.log {
            if change.unsynced.is_empty() || has_reached() {
                change.apply(&mut names);
            }
        }
        for node in &mut machine.nodes {
            if let Node::Image { now, durable, log, .. } = node {
                for change in std::mem::take(log) {
                    if has_reached() {
                        change.apply(durable);
                    }
                }
                now.clone_from(durable);
            }
        }
        let (names, durable) = (names.clone(), names);
        Self(Arc::new(Mutex::new(Machine {
            names,
            durable,
            log: Vec::new(),
            power: usize::MAX,
            is_cut: false,
            ..machine
        })))
    }

    /// Writes a block as a user of the volume does.
    pub(super) fn user_writes(&self, disk: &Path, at: usize, value: u8, is_flushed: bool) {
        let mut machine = self.machine();
        let node = machine.node(disk).expect("a volume");
        let block = machine.new_block(value);
        let Node::Image { now, durable, log, is_fixed: false } = &mut machine.nodes[node] else { panic!("no disk") };
        let change = ContentChange::Block(at, Some(block));
        change.apply(now);
        log.push(change);
        if is_flushed {
            durable.clone_from(now);
            log.clear();
        }
    }

    /// The blocks of an image, as its users read them.
    pub(super) fn content(&self, image: &Path) -> Vec<u8> {
        let machine = self.machine();
        let Node::Image { now, .. } = &machine.nodes[machine.node(image).expect("an image")] else {
            panic!("no image")
        };
        now.iter().map(|block| block.map_or(0, |block| block.value)).collect()
    }

    /// Whether an image shares a block with another one.
    pub(super) fn shares(&self, image: &Path) -> bool {
        let machine = self.machine();
        let node = machine.node(image).expect("an image");
        machine.blocks(node).iter().flatten().any(|block| machine.is_shared(*block))
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap()
    }
}

impl Machine {
    /// One operation that changes something.
    fn step(&mut self, needs_space: bool) -> io::Result<()> {
        if self.power == 0 {
            self.is_cut = true;
        }
        self.look()?;
        self.power -= 1;
        match &mut self.until_failure {
            Some(0) => {
                self.until_failure = None;
                return Err(io::Error::other("the medium has failed"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match &mut self.until_full {
            Some(0) if needs_space => {
                self.until_full = None;
                Err(ErrorKind::StorageFull.into())
            }
            Some(left) if needs_space => {
                *left -= 1;
                Ok(())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// An operation that changes nothing.
    fn look(&self) -> io::Result<()> {
        if self.is_cut { Err(io::Error::other("the power is cut")) } else { Ok(()) }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        path.components().try_fold(0, |folder, part| {
            let Component::Normal(name) = part else { panic!("{path:?} leads out of the pool") };
            self.names.get(&(folder, name.to_str()?.to_owned())).copied()
        })
    }

    fn node(&self, path: &Path) -> io::Result<usize> {
        self.find(path).ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("no {}", path.display())))
    }

    /// The key of a name.
    fn key(&self, path: &Path) -> io::Result<(usize, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        Ok((self.node(&layout::parent(path))?, name.to_owned()))
    }

    fn change(&mut self, from: Option<(usize, String)>, to: Option<(usize, String)>, node: usize) {
        let unsynced = [&from, &to].into_iter().flatten().map(|(folder, _)| *folder).collect();
        let change = NameChange { from, to, node, unsynced };
        change.apply(&mut self.names);
        self.log.push(change);
    }

    fn make(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        let key = self.key(path)?;
        if self.names.contains_key(&key) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.change(None, Some(key), number);
        Ok(number)
    }

    fn has_names(&self, folder: usize) -> bool {
        self.names.keys().any(|(of, _)| *of == folder)
    }

    fn blocks(&self, node: usize) -> &Blocks {
        let Node::Image { now, .. } = &self.nodes[node] else { panic!("no image") };
        now
    }

    fn write(&mut self, node: usize, change: ContentChange) {
        let Node::Image { now, log, .. } = &mut self.nodes[node] else { panic!("no image") };
        change.apply(now);
        log.push(change);
    }

    fn new_block(&mut self, value: u8) -> Block {
        self.next_place += BLOCK;
        Block { place: self.next_place, value }
    }

    fn is_shared(&self, block: Block) -> bool {
        let has = |node: &&usize| {
            let Node::Image { now, .. } = &self.nodes[**node] else { return false };
            now.iter().flatten().any(|other| other.place == block.place)
        };
        self.names.values().filter(has).count() > 1
    }
}

impl Files for Model {
    type Image = Open;

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let machine = self.machine();
        machine.look()?;
        let folder = machine.node(folder)?;
        Ok(machine.names.keys().filter(|(of, _)| *of == folder).map(|(_, name)| name.clone()).collect())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<Kind>> {
        let machine = self.machine();
        machine.look()?;
        let kind = |node: usize| if matches!(machine.nodes[node], Node::Folder) { Kind::Folder } else { Kind::File };
        Ok(machine.find(path).map(kind))
    }

    fn read(&self, file: &Path) -> io::Result<Option<String>> {
        let machine = self.machine();
        machine.look()?;
        Ok(machine.find(file).map(|node| match &machine.nodes[node] {
            Node::Text(text) => text.clone(),
            Node::Folder | Node::Image { .. } => panic!("{} is no record", file.display()),
        }))
    }

    fn write(&self, file: &Path, content: &str) -> io::Result<()> {
        let mut machine = self.machine();
        if machine.power == 0 && !machine.is_cut {
            // Half of it may be there.
            machine.make(file, Node::Text(content[..content.len() / 2].to_owned()))?;
        }
        machine.step(true)?;
        machine.make(file, Node::Text(content.to_owned())).map(drop)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        machine.make(path, Node::Folder).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        let (node, from, to) = (machine.node(from)?, machine.key(from)?, machine.key(to)?);
        if machine.names.contains_key(&to) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        machine.change(Some(from), Some(to), node);
        Ok(())
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        let (node, from, to) = (machine.node(from)?, machine.key(from)?, machine.key(to)?);
        machine.change(Some(from), Some(to), node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(false)?;
        let (node, key) = (machine.node(path)?, machine.key(path)?);
        assert!(!matches!(machine.nodes[node], Node::Folder), "{} is a folder", path.display());
        machine.change(Some(key), None, node);
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(false)?;
        let (node, key) = (machine.node(path)?, machine.key(path)?);
        assert!(matches!(machine.nodes[node], Node::Folder), "{} is no folder", path.display());
        if machine.has_names(node) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        machine.change(Some(key), None, node);
        Ok(())
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(false)?;
        let folder = machine.node(folder)?;
        let Machine { log, durable, .. } = &mut *machine;
        for change in log.iter_mut() {
            change.unsynced.remove(&folder);
        }
        let settled = log.iter().position(|change| !change.unsynced.is_empty()).unwrap_or(log.len());
        log.drain(..settled).for_each(|change| change.apply(durable));
        Ok(())
    }

    fn make_image(&self, path: &Path, is_fixed: bool) -> io::Result<Open> {
        let mut machine = self.machine();
        machine.step(true)?;
        let node = Node::Image { now: Blocks::new(), durable: Blocks::new(), log: Vec::new(), is_fixed };
        machine.make(path, node).map(Open)
    }

    fn open_image(&self, path: &Path) -> io::Result<Open> {
        let machine = self.machine();
        machine.look()?;
        machine.node(path).map(Open)
    }

    fn change_image(&self, path: &Path) -> io::Result<Open> {
        let machine = self.machine();
        machine.look()?;
        let node = machine.node(path)?;
        assert!(matches!(machine.nodes[node], Node::Image { is_fixed: false, .. }), "{} is fixed", path.display());
        Ok(Open(node))
    }

    fn len(&self, image: &Open) -> io::Result<u64> {
        let machine = self.machine();
        machine.look()?;
        Ok(machine.blocks(image.0).len() as u64 * BLOCK)
    }

    fn block_bytes(&self, _: &Open) -> io::Result<u64> {
        let machine = self.machine();
        machine.look()?;
        Ok(machine.block_bytes)
    }

    fn set_len(&self, image: &Open, len_bytes: u64) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        machine.write(image.0, ContentChange::Len((len_bytes / BLOCK) as usize));
        Ok(())
    }

    fn allocate(&self, _: &Open, _: Range<u64>) -> io::Result<()> {
        self.machine().step(true)
    }

    fn clone_into(&self, from: &Open, into: &Open) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        let blocks = machine.blocks(from.0).clone();
        let len = blocks.len().max(machine.blocks(into.0).len());
        machine.write(into.0, ContentChange::Len(len));
        for (at, block) in blocks.into_iter().enumerate() {
            machine.write(into.0, ContentChange::Block(at, block));
        }
        Ok(())
    }

    fn clone_range(&self, from: &Open, into: &Open, range: Range<u64>) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        assert_eq!(machine.blocks(from.0).len(), machine.blocks(into.0).len());
        for at in (range.start / BLOCK) as usize..range.end.div_ceil(BLOCK) as usize {
            let block = machine.blocks(from.0)[at];
            machine.write(into.0, ContentChange::Block(at, block));
        }
        Ok(())
    }

    fn flush(&self, image: &Open) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(false)?;
        let Node::Image { now, durable, log, .. } = &mut machine.nodes[image.0] else { panic!("no image") };
        durable.clone_from(now);
        log.clear();
        Ok(())
    }

    fn unshare(&self, image: &Open, range: Range<u64>) -> io::Result<()> {
        let mut machine = self.machine();
        machine.step(true)?;
        for at in (range.start / BLOCK) as usize..(range.end / BLOCK) as usize {
            if let Some(Block { value, .. }) = machine.blocks(image.0)[at] {
                let own = machine.new_block(value);
                machine.write(image.0, ContentChange::Block(at, Some(own)));
            }
        }
        Ok(())
    }

    /// The extents of what is flushed; the rest has none.
    fn extents<'a>(&'a self, image: &'a Open) -> Box<dyn Iterator<Item = io::Result<Extent>> + 'a> {
        let machine = self.machine();
        let Node::Image { durable, .. } = &machine.nodes[image.0] else { panic!("no image") };
        let extent = |(at, block): (usize, &Option<Block>)| {
            let block = (*block)?;
            let start = at as u64 * BLOCK;
            Some(Ok(Extent {
                range: start..start + BLOCK,
                place: Some(block.place),
                is_unwritten: false,
                is_shared: machine.is_shared(block),
            }))
        };
        let extents: Vec<_> = durable.iter().enumerate().filter_map(extent).collect();
        Box::new(extents.into_iter())
    }

    fn allocated_bytes(&self, image: &Open) -> io::Result<u64> {
        Ok(self.machine().blocks(image.0).iter().flatten().count() as u64 * BLOCK)
    }

    fn space(&self) -> io::Result<PoolSpace> {
        Ok(PoolSpace::default())
    }
}
