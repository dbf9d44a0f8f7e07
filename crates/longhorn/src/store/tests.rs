use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use lunette_buffer::{Buffer, Pool};
use lunette_store::execute;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const LEN: u64 = 1 << 20;

/// The time that engines of some tests have for a request.
const SHORT: Duration = Duration::from_millis(500);

/// A request as the engine reads it.
struct Asked {
    header: [u8; HEADER_LEN],
    data: Vec<u8>,
}

impl Asked {
    fn read(stream: &mut UnixStream) -> Option<Self> {
        let mut header = [0; HEADER_LEN];
        stream.read_exact(&mut header).ok()?;
        let mut data = vec![0; field(&header, 22)];
        stream.read_exact(&mut data).ok()?;
        Some(Self { header, data })
    }

    fn range(&self) -> std::ops::Range<usize> {
        let offset = u64::from_le_bytes(self.header[10..18].try_into().unwrap()) as usize;
        offset..offset + field(&self.header, 18)
    }

    fn answer(&self, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut header = self.header;
        header[6..10].copy_from_slice(&kind.to_le_bytes());
        header[22..].copy_from_slice(&(data.len() as u32).to_le_bytes());
        [&header, data].concat()
    }
}

fn field(header: &[u8; HEADER_LEN], at: usize) -> usize {
    u32::from_le_bytes(header[at..at + 4].try_into().unwrap()) as usize
}

/// The answer of an engine to a request; without one it ends.
type Reply = fn(Asked) -> Option<Vec<u8>>;

/// An engine that serves one connection, and the store at it.
struct Engine {
    store: LonghornStore,
    thread: JoinHandle<()>,
    _folder: TempDir,
}

impl Engine {
    /// Answers requests by `answer` until it has nothing to say.
    fn start(answer: impl FnMut(Asked) -> Option<Vec<u8>> + Send + 'static) -> Self {
        Self::start_within(REQUEST_LIMIT, answer)
    }

    fn start_within(limit: Duration, mut answer: impl FnMut(Asked) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while let Some(bytes) = Asked::read(&mut stream).and_then(&mut answer) {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        let name = LonghornName { socket, len_bytes: LEN, unmap: true };
        let store = LonghornStore::open_with(&name, false, limit).unwrap();
        Self { store, thread, _folder: folder }
    }

    /// An engine with a volume of zeroes.
    fn honest() -> Self {
        let mut volume = vec![0; LEN as usize];
        Self::start(move |asked| {
            let range = asked.range();
            match asked.header[6] {
                0 => Some(asked.answer(2, &volume[range])),
                7 => {
                    volume[range].fill(0);
                    Some(asked.answer(2, &[]))
                }
                1 => {
                    volume[range].copy_from_slice(&asked.data);
                    Some(asked.answer(2, &[]))
                }
                _ => None,
            }
        })
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let outcome = execute(&self.store, Op::Read { offset, into: buffer(&vec![0xaa; len]) });
        outcome.result.map(|()| outcome.buffer.unwrap().to_vec())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        execute(&self.store, Op::Write { offset, from: buffer(bytes), fua: true }).result
    }

    fn end(self) {
        drop(self.store);
        self.thread.join().unwrap();
    }
}

fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Pool::new(4 << 20).take(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

#[test]
fn what_is_written_is_read_and_zeroes_go_piece_by_piece() {
    let engine = Engine::honest();
    let bytes = vec![7; LEN as usize];
    engine.write(0, &bytes).unwrap();
    assert!(engine.read(0, bytes.len()).unwrap() == bytes);
    execute(&engine.store, Op::Flush).result.unwrap();
    let zeroes = Op::WriteZeroes { offset: 512, len: LEN - 1024, may_unmap: false, fua: false };
    execute(&engine.store, zeroes).result.unwrap();
    let expected = [&[7; 512], vec![0; LEN as usize - 1024].as_slice(), &[7; 512]].concat();
    assert!(engine.read(0, bytes.len()).unwrap() == expected);
    execute(&engine.store, Op::Unmap { offset: LEN - 512, len: 512 }).result.unwrap();
    assert_eq!(engine.read(LEN - 512, 512).unwrap(), [0; 512]);
    let beyond = engine.read(LEN, 512).unwrap_err();
    assert!(matches!(beyond, StoreError::OutOfRange { .. }), "{beyond}");
    engine.end();
}

#[test]
fn an_error_of_the_engine_ends_its_request_alone() {
    let engine = Engine::start(|asked| match asked.range().start {
        0 => Some(asked.answer(3, b"replica failed")),
        512 => Some(asked.answer(4, b"x")),
        _ => Some(asked.answer(2, &[1; 512])),
    });
    assert!(engine.read(0, 512).unwrap_err().to_string().contains("replica failed"));
    assert!(matches!(engine.read(512, 512), Err(StoreError::Io(_))));
    assert_eq!(engine.read(1024, 512).unwrap(), [1; 512]);
    engine.end();
}

#[test]
fn an_engine_that_ends_or_lies_fails_all_requests() {
    let lies: [Reply; 6] = [
        |_| None,
        |asked| Some(asked.answer(2, &[1; 511])),
        |asked| Some(asked.answer(9, &[])),
        |asked| Some(asked.answer(3, &vec![b'x'; MAX_ERROR_BYTES as usize + 1])),
        |mut asked| {
            asked.header[2] ^= 0x40;
            Some(asked.answer(2, &[1; 512]))
        },
        |_| Some(vec![0; HEADER_LEN]),
    ];
    for lie in lies {
        let engine = Engine::start(lie);
        for _ in 0..2 {
            let error = engine.read(0, 512).unwrap_err();
            assert!(error.concerns_all_bytes(), "{error}");
        }
        engine.end();
    }
}

#[test]
fn an_engine_that_does_not_answer_is_given_up() {
    let engine = Engine::start_within(SHORT, |_| Some(Vec::new()));
    assert!(engine.read(0, 512).unwrap_err().concerns_all_bytes());
    engine.end();
}

#[test]
fn an_answer_to_a_request_that_is_still_being_sent_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("engine.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let engine = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut header = [0; HEADER_LEN];
        stream.read_exact(&mut header).unwrap();
        header[6..10].copy_from_slice(&2_u32.to_le_bytes());
        header[22..].fill(0);
        stream.write_all(&header).unwrap();
        // The data stay unread, so the request is not sent before the store gives up.
        stream
    });
    let store = LonghornStore::open_with(&LonghornName { socket, len_bytes: LEN, unmap: false }, false, SHORT).unwrap();
    let write = Op::Write { offset: 0, from: buffer(&vec![1; LEN as usize]), fua: false };
    assert!(execute(&store, write).result.unwrap_err().concerns_all_bytes());
    drop((store, engine.join().unwrap()));
}

#[test]
fn answers_may_come_in_another_order() {
    let mut held: Option<Asked> = None;
    let engine = Engine::start(move |asked| match held.take() {
        None => {
            held = Some(asked);
            Some(Vec::new())
        }
        Some(first) => {
            let answer = |asked: &Asked| asked.answer(2, &[u8::try_from(asked.range().start / 512).unwrap(); 512]);
            Some([answer(&asked), answer(&first)].concat())
        }
    });
    thread::scope(|scope| {
        let reads = [1_u8, 2].map(|block| {
            let engine = &engine;
            (block, scope.spawn(move || engine.read(u64::from(block) * 512, 512).unwrap()))
        });
        for (block, read) in reads {
            assert_eq!(read.join().unwrap(), [block; 512]);
        }
    });
    engine.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_volume_holds_what_a_model_holds(
        steps in prop::collection::vec((0_u64..64, 1_usize..16, any::<u8>(), any::<bool>()), 1..24)
    ) {
        let engine = Engine::honest();
        let mut model = vec![0; LEN as usize];
        for (block, blocks, byte, is_write) in steps {
            let (at, len) = (block as usize * 512, blocks * 512);
            if is_write {
                engine.write(at as u64, &vec![byte; len]).unwrap();
                model[at..at + len].fill(byte);
            }
            prop_assert_eq!(engine.read(at as u64, len).unwrap(), &model[at..at + len]);
        }
        engine.end();
    }
}
