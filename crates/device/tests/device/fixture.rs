//! A driver for tasks, and a store that records its requests.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lunette_buffer::{Buffer, Pool};
use lunette_device::{
    BackgroundTask, Command, Input, LogicalUnit, LogicalUnitConfig, MAX_TRANSFER_BYTES, Nexus, NexusId, NexusName,
    QuantaOptions, Response, Step, TargetDevice, Waitable,
};
use lunette_scsi::{AdditionalSense, Cdb, Lun, SenseData, SenseKey, Status, TaskAttribute};
use lunette_state::{StateError, StateStore};
use lunette_store::{
    Capabilities, Completion, FileIo, Geometry, Op, OpKind, Outcome, Run, Space, Store, StoreError, execute,
};

/// The time that all tests start at.
pub(crate) const NOW_MS: u64 = 1_795_000_000_123;

/// The properties of a test store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Medium {
    pub(crate) len_bytes: u64,
    pub(crate) block_size: u32,
    pub(crate) read_only: bool,
    pub(crate) removable: bool,
    pub(crate) soft_threshold_bytes: Option<u64>,
    pub(crate) sanitize_rate: Option<u64>,
    pub(crate) quanta: QuantaOptions,
    pub(crate) long_cdbs: bool,
    pub(crate) capabilities: Capabilities,
}

/// 1,024 blocks of 512 bytes on a store that frees space.
pub(crate) const THIN: Medium = Medium {
    len_bytes: 1024 * 512,
    block_size: 512,
    read_only: false,
    removable: false,
    soft_threshold_bytes: None,
    sanitize_rate: None,
    quanta: QuantaOptions { check_writes: false, scrub_rate: None, stored_digests: false },
    long_cdbs: false,
    capabilities: Capabilities {
        read_only: false,
        volatile_cache: true,
        unmap: true,
        unmap_zeroes: true,
        anchors: true,
        write_zeroes: true,
        memory: true,
    },
};

/// A request as the store received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: OpKind,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) fua: bool,
}

pub(crate) struct TestStore {
    medium: Medium,
    /// The length of the disk now.
    pub(crate) len_bytes: AtomicU64,
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// `may_unmap` of the last request for zeroes.
    pub(crate) may_unmap: Mutex<bool>,
    /// The space that the store reports.
    pub(crate) space: Mutex<Option<Space>>,
    /// The error of the next request.
    pub(crate) fails: Mutex<Option<StoreError>>,
    /// The byte of the next write that is corrupted.
    pub(crate) spoils: Mutex<Option<usize>>,
}

impl TestStore {
    fn run(&self, op: &mut Op) -> Result<(), StoreError> {
        let (offset, len) = op.range();
        self.seen.lock().unwrap().push(Seen { kind: op.kind(), offset, len, fua: op.fua() });
        if let Some(error) = self.fails.lock().unwrap().take() {
            return Err(error);
        }
        op.check(self.geometry().len_bytes, false)?;
        let mut bytes = self.bytes.lock().unwrap();
        let range = offset as usize..(offset + len) as usize;
        match op {
            Op::Read { into, .. } => into.copy_from_slice(&bytes[range]),
            Op::Write { from, .. } => {
                bytes[range].copy_from_slice(from);
                if let Some(at) = self.spoils.lock().unwrap().take() {
                    bytes[at] ^= 1;
                }
            }
            Op::WriteZeroes { may_unmap, .. } => {
                *self.may_unmap.lock().unwrap() = *may_unmap;
                bytes[range].fill(0);
            }
            Op::Unmap { .. } => bytes[range].fill(0),
            Op::Allocation { found, .. } => {
                // Blocks count as written when they are not zero.
                for block in bytes[range].chunks(512) {
                    found.push(Run { len: block.len() as u64, allocated: block.iter().any(|byte| *byte != 0) });
                }
            }
            Op::Copy { .. } => unreachable!("it has no file"),
            Op::Flush => {}
        }
        Ok(())
    }
}

impl TestStore {
    pub(crate) fn may_unmap(&self) -> bool {
        *self.may_unmap.lock().unwrap()
    }
}

impl Store for TestStore {
    fn geometry(&self) -> Geometry {
        let len_bytes = self.len_bytes.load(Ordering::Relaxed);
        Geometry { len_bytes, granularity_bytes: 64, physical_bytes: 4096, unmap_bytes: 65_536 }
    }

    fn capabilities(&self) -> Capabilities {
        self.medium.capabilities
    }

    fn space(&self) -> std::io::Result<Option<Space>> {
        Ok(*self.space.lock().unwrap())
    }

    fn submit(&self, mut op: Op, _: &dyn FileIo, done: Completion) {
        let result = self.run(&mut op);
        done.complete(Outcome::of(op, result));
    }
}

/// A state store in memory, which survives a simulated restart.
#[derive(Default)]
pub(crate) struct TestState {
    pub(crate) values: Mutex<HashMap<String, Vec<u8>>>,
    /// Whether saves fail from now on.
    pub(crate) broken: Mutex<bool>,
}

impl StateStore for TestState {
    fn load(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.values.lock().unwrap().get(name).cloned())
    }

    fn save(&self, name: &str, value: Option<&[u8]>) -> Result<(), StateError> {
        if *self.broken.lock().unwrap() {
            return Err(StateError("broken".into()));
        }
        let mut values = self.values.lock().unwrap();
        match value {
            Some(value) => drop(values.insert(name.into(), value.to_vec())),
            None => drop(values.remove(name)),
        }
        Ok(())
    }
}

/// A target device with one logical unit, LUN 0, and one nexus that has taken its first unit attention.
pub(crate) struct Fixture {
    pub(crate) device: Arc<TargetDevice>,
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) store: Arc<TestStore>,
    pub(crate) nexus: Nexus,
    pool: Pool,
    /// The nexuses whose tasks were to be aborted.
    pub(crate) aborted: Mutex<Vec<NexusId>>,
    background: Mutex<VecDeque<(BackgroundTask, Asked)>>,
    /// The sum of the pauses of background work.
    pub(crate) paused: Mutex<Duration>,
    /// The time that the clock shows.
    pub(crate) now_ms: Arc<AtomicU64>,
}

/// The condition that background work waits for.
enum Asked {
    For(Step),
    ToWait(Receiver<()>),
}

/// A receiver that gets a message when the condition holds.
fn wait(on: &dyn Waitable) -> Receiver<()> {
    let (tx, rx) = channel();
    on.wait(Completion::call(move |_| {
        // The receiver may be dropped by then.
        let _ = tx.send(());
    }));
    rx
}

pub(crate) fn name(initiator: &str) -> NexusName {
    name_on(initiator, 1)
}

/// The nexus of an initiator with the port of a group.
pub(crate) fn name_on(initiator: &str, group: u16) -> NexusName {
    NexusName {
        initiator: format!("{initiator},i,0x400001370000"),
        target_port: format!("iqn.2026-11.lunette:disk,t,0x{group:04x}"),
        relative_port: group,
    }
}

/// CDB bytes, padded to sixteen.
pub(crate) fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

impl Fixture {
    pub(crate) fn new(medium: Medium) -> Self {
        Self::with_state(medium, None)
    }

    /// A unit with the state that an earlier one has saved in `state`.
    pub(crate) fn after(medium: Medium, state: &Arc<TestState>) -> Self {
        Self::with_state(medium, Some(Arc::clone(state) as Arc<dyn StateStore>))
    }

    /// A unit with a state store.
    pub(crate) fn with_state(medium: Medium, state: Option<Arc<dyn StateStore>>) -> Self {
        Self::build(medium, state, None)
    }

    /// A unit that several servers offer, this one through the port of a group.
    pub(crate) fn shared(group: u16) -> Self {
        Self::build(THIN, None, Some(group))
    }

    fn build(medium: Medium, state: Option<Arc<dyn StateStore>>, shared: Option<u16>) -> Self {
        let bytes = Mutex::new(vec![0; medium.len_bytes as usize]);
        let store = Arc::new(TestStore {
            medium,
            len_bytes: AtomicU64::new(medium.len_bytes),
            bytes,
            seen: Mutex::default(),
            may_unmap: Mutex::default(),
            space: Mutex::new(Some(Space { used_bytes: 3 << 20, free_bytes: 20 << 20 })),
            fails: Mutex::default(),
            spoils: Mutex::default(),
        });
        let now_ms = Arc::new(AtomicU64::new(NOW_MS));
        let clock = Arc::clone(&now_ms);
        let config = LogicalUnitConfig {
            block_size: medium.block_size,
            read_only: medium.read_only,
            removable: medium.removable,
            soft_threshold_bytes: medium.soft_threshold_bytes,
            sanitize_rate: medium.sanitize_rate,
            quanta: medium.quanta,
            long_cdbs: medium.long_cdbs,
            clock: Arc::new(move || Duration::from_millis(clock.load(Ordering::Relaxed))),
            state,
            shared: shared.is_some(),
            ..LogicalUnitConfig::new(Arc::clone(&store) as Arc<dyn Store>, "serial-1")
        };
        let unit = Arc::new(LogicalUnit::new(config).unwrap());
        let device = Arc::new(TargetDevice::new("iqn.2026-11.lunette:disk"));
        device.add(Lun::ZERO, Arc::clone(&unit)).unwrap();
        let nexus = device.attach(name_on("iqn.2026-11.host:a", shared.unwrap_or(1)));
        let fixture = Self::of(device, unit, store, nexus, now_ms);
        assert_eq!(fixture.run(&[0x00], &[]).status, Status::CHECK_CONDITION, "the first unit attention");
        fixture
    }

    fn of(
        device: Arc<TargetDevice>,
        unit: Arc<LogicalUnit>,
        store: Arc<TestStore>,
        nexus: Nexus,
        now_ms: Arc<AtomicU64>,
    ) -> Self {
        Self {
            device,
            unit,
            store,
            nexus,
            pool: Pool::new(64 << 20),
            aborted: Mutex::default(),
            background: Mutex::default(),
            paused: Mutex::default(),
            now_ms,
        }
    }

    /// The process that takes the place of this one, with this device, its unit at LUN 0 and the first nexus.
    pub(crate) fn successor(&self, device: Arc<TargetDevice>, unit: Arc<LogicalUnit>, nexus: Nexus) -> Self {
        Self::of(device, unit, Arc::clone(&self.store), nexus, Arc::clone(&self.now_ms))
    }

    /// Runs a 16-byte command to LUN 0, with Data-Out.
    pub(crate) fn run(&self, bytes: &[u8], data_out: &[u8]) -> Response {
        self.run_on(&self.nexus, [0; 8], cdb(bytes), data_out)
    }

    /// The Data-In of a successful command.
    pub(crate) fn read(&self, bytes: &[u8]) -> Vec<u8> {
        let response = self.run(bytes, &[]);
        assert_eq!(response.status, Status::GOOD, "{response:?}");
        response.data_in.to_vec()
    }

    /// The sense data of a failed command.
    pub(crate) fn refused(&self, bytes: &[u8], data_out: &[u8]) -> SenseData {
        sense(&self.run(bytes, data_out))
    }

    pub(crate) fn run_on(&self, nexus: &Nexus, lun: [u8; 8], cdb: impl Into<Cdb>, data_out: &[u8]) -> Response {
        let command = Command {
            lun,
            cdb: cdb.into(),
            attribute: TaskAttribute::Simple,
            data_out_len: data_out.len() as u32,
            data_in_len: u32::MAX,
        };
        let mut task = self.device.start(nexus, command);
        let mut input = Input::Start;
        loop {
            input = match task.step(input) {
                Step::Buffer { len } => Input::Buffer(self.buffer(len)),
                Step::DataOut { len } => {
                    let mut buffer = self.buffer(len);
                    buffer.copy_from_slice(&data_out[..len]);
                    Input::DataOut(buffer)
                }
                Step::File { .. } => Input::File(false),
                Step::Store { store, op } => Input::Store(execute(&*store, op)),
                Step::Wait { on } => {
                    let told = wait(&*on);
                    // Background work may bring the condition about; otherwise another thread does.
                    while told.try_recv().is_err() {
                        if !self.step_background() {
                            told.recv().unwrap();
                            break;
                        }
                    }
                    Input::Waited
                }
                Step::Background(task) => {
                    self.begin_background(task);
                    Input::Begun
                }
                Step::Work(work) => Input::Store(Outcome::new(work(), None)),
                Step::Pause { .. } => panic!("a command lets time pass"),
                // Commands run one after the other here, so there is no task to abort.
                Step::Abort { tasks, .. } => {
                    self.aborted.lock().unwrap().extend(tasks.iter().map(|(nexus, _)| *nexus));
                    Input::Aborted { lost: tasks.into_iter().map(|(nexus, _)| nexus).collect() }
                }
                Step::Done(response) => return response,
            };
        }
    }

    pub(crate) fn begin_background(&self, mut task: BackgroundTask) {
        if let Some(step) = task.step(Input::Start) {
            self.background.lock().unwrap().push_back((task, Asked::For(step)));
        }
    }

    /// Resumes the work that an earlier process has left.
    pub(crate) fn resume_background(&self) {
        self.device.background().into_iter().for_each(|task| self.begin_background(task));
    }

    /// Drives the first background task by one step. False when there is none.
    pub(crate) fn step_background(&self) -> bool {
        let Some((mut task, asked)) = self.background.lock().unwrap().pop_front() else { return false };
        let input = match asked {
            Asked::For(Step::Buffer { len }) => Input::Buffer(self.buffer(len)),
            Asked::For(Step::Store { store, op }) => Input::Store(execute(&*store, op)),
            Asked::For(Step::Work(work)) => Input::Store(Outcome::new(work(), None)),
            Asked::For(Step::Pause { time }) => {
                *self.paused.lock().unwrap() += time;
                Input::Waited
            }
            // Commands run one after the other here, so there is no task to abort.
            Asked::For(Step::Abort { tasks, .. }) => {
                let nexuses: Vec<NexusId> = tasks.into_iter().map(|(nexus, _)| nexus).collect();
                self.aborted.lock().unwrap().extend(&nexuses);
                Input::Aborted { lost: nexuses }
            }
            Asked::For(Step::Wait { on }) => {
                self.background.lock().unwrap().push_front((task, Asked::ToWait(wait(&*on))));
                return true;
            }
            Asked::For(other) => panic!("background work asks for {other:?}"),
            Asked::ToWait(told) if told.try_recv().is_ok() => Input::Waited,
            Asked::ToWait(told) => {
                self.background.lock().unwrap().push_back((task, Asked::ToWait(told)));
                return false;
            }
        };
        if let Some(step) = task.step(input) {
            self.background.lock().unwrap().push_front((task, Asked::For(step)));
        }
        true
    }

    /// Drives all background work to its end.
    pub(crate) fn finish_background(&self) {
        while self.step_background() {}
        assert!(self.background.lock().unwrap().is_empty(), "it waits for others");
    }

    /// The requests to the store since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.store.seen.lock().unwrap())
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        self.store.bytes.lock().unwrap()[offset..offset + len].to_vec()
    }

    /// Bytes of the pool that are in use.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.pool.used_bytes()
    }

    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        assert!((1..=MAX_TRANSFER_BYTES).contains(&len), "a task asks for {len} bytes");
        let mut buffer = self.pool.take(len).expect("the driver's pool has room for one task");
        // The bytes of an earlier use of the buffer must not reach the initiator.
        buffer.fill(0xee);
        buffer
    }
}

pub(crate) fn sense(response: &Response) -> SenseData {
    assert_eq!(response.status, Status::CHECK_CONDITION, "{response:?}");
    assert!(response.data_in.is_empty());
    SenseData::decode(response.sense.as_ref().expect("CHECK CONDITION has sense data")).unwrap()
}

/// Key and code of sense data.
pub(crate) fn code(sense: SenseData) -> (SenseKey, AdditionalSense) {
    (sense.key, sense.code)
}
