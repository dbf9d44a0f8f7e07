//! A process that carries out short commands in batches, to have the instructions of both sides of the protocol
//! counted:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted*' target/release/count-commands read plain 0
//! ```
//!
//! Arguments: `read` or `write`, `plain` or `digests`, then the ErrorRecoveryLevel. Ends with status 2 on anything
//! else.

mod pair;

use std::hint::black_box;
use std::process::ExitCode;

use lunette_buffer::{Buffer, Pool};
use lunette_session::keys::Offer;
use lunette_session::{iscsi_initiator, iscsi_target};
use pair::{Pair, command};

/// Short, so that the copy of the data hides little.
const LEN: usize = 512;
const BATCH: usize = 16;
const BATCHES: usize = 64;

/// The part to count, in three steps. Not inlined, so that they have names to be toggled by.
#[inline(never)]
fn counted_submit(pair: &mut Pair, commands: &mut Vec<iscsi_initiator::Command>) {
    for command in commands.drain(..) {
        pair.session.submit(command, pair.now).expect("there is room");
    }
}

/// The target's side, with a device that answers at once.
#[inline(never)]
fn counted_target(pair: &mut Pair, sent: usize, mut input: &[u8], answers: &mut Vec<Buffer>) {
    pair.session.sent(pair.cid, sent);
    let now = pair.now;
    let target = pair.target();
    while let Some(event) = target.next_event((), &mut input, now) {
        let mut connection = target.connection_mut(()).expect("it lives");
        match event {
            iscsi_target::Event::Command(command) if command.data_out_len > 0 => {
                connection.want_data(command.task, answers.pop().expect("one buffer for each command"));
            }
            iscsi_target::Event::Command(command) => {
                let data_in = answers.pop().expect("one buffer for each command").into();
                connection
                    .complete(command.task, iscsi_target::Response { data_in, ..iscsi_target::Response::default() });
            }
            iscsi_target::Event::DataOut { task, buffer } => {
                drop(black_box(buffer));
                let data_out_transfer_len = LEN as u64;
                connection.complete(
                    task,
                    iscsi_target::Response { data_out_transfer_len, ..iscsi_target::Response::default() },
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[inline(never)]
fn counted_initiator(pair: &mut Pair, sent: usize, mut input: &[u8], ended: &mut usize) {
    pair.connection().sent(sent);
    while let Some(event) = pair.session.next_event(pair.cid, &mut input, pair.now) {
        let iscsi_initiator::Event::Completed { response, .. } = black_box(event) else {
            panic!("not the end of a command")
        };
        assert_eq!((response.response, response.status), (0, 0));
        *ended += 1;
    }
}

/// One batch. Taking buffers, and gathering what is sent, are not counted.
fn run(pair: &mut Pair, pool: &Pool, reads: bool) {
    let buffer = || pool.take(LEN).expect("the pool is large enough");
    let command = || if reads { command(Some(buffer()), None) } else { command(None, Some(buffer())) };
    let mut commands: Vec<_> = (0..BATCH).map(|_| command()).collect();
    let mut answers: Vec<_> = (0..BATCH).map(|_| buffer()).collect();
    let mut ended = 0;
    counted_submit(pair, &mut commands);
    while ended < BATCH {
        let requests = pair.session.slices(pair.cid).collect::<Vec<_>>().concat();
        counted_target(pair, requests.len(), &requests, &mut answers);
        let responses = pair.connection().slices().collect::<Vec<_>>().concat();
        assert!(!responses.is_empty(), "the target answers at once");
        counted_initiator(pair, responses.len(), &responses, &mut ended);
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [direction @ ("read" | "write"), digests @ ("plain" | "digests"), level @ ("0" | "1" | "2")] =
        args.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        return ExitCode::from(2);
    };
    let error_recovery_level = level.parse().expect("a digit");
    let mut pair = Pair::logged_in(&Offer { error_recovery_level, ..Offer::default() }, digests == "digests");
    let pool = Pool::new(1 << 20);
    for _ in 0..BATCHES {
        run(&mut pair, &pool, direction == "read");
    }
    ExitCode::SUCCESS
}
