use super::*;

const LOAD: Load = Load {
    commands: 1,
    depth: 1,
    block_len: 512,
    blocks: 8,
    longest: 4,
    pause_us: 0,
    work_us: 0,
    at_once: 0,
    manage: 0,
    changes: 0,
    change_pause_us: 0,
    freezes: 0,
    freeze_us: 0,
    stops: false,
};
const EXTENT: Extent = Extent { unit: 0, first: 2, blocks: 3 };

fn submission(kind: Kind) -> Submission {
    Submission { client: 0, kind, extent: EXTENT, may_repeat: false, is_barred: false }
}

fn oracle(kind: Kind) -> Oracle {
    let mut oracle = Oracle::new(&LOAD, Some(9));
    assert_eq!(oracle.submitted(submission(kind)), 1);
    oracle
}

fn bytes(oracle: &Oracle, writer: Writer) -> Vec<u8> {
    let mut bytes = vec![0; EXTENT.blocks * LOAD.block_len];
    oracle.medium.fill(EXTENT.unit, EXTENT.first, &[writer; 3], &mut bytes);
    bytes
}

fn run(oracle: &mut Oracle, user: User) -> Result<(), Broken> {
    let bytes = bytes(oracle, user);
    oracle.written(EXTENT.unit, EXTENT.first, &bytes)
}

fn read(oracle: &mut Oracle, writer: Writer) -> Result<(), Broken> {
    let user = oracle.submitted(submission(Kind::Read));
    let bytes = bytes(oracle, writer);
    oracle.read_succeeded(user, &bytes)
}

#[test]
fn a_write_and_a_read_of_it_are_right() {
    let mut oracle = oracle(Kind::Write);
    assert!(!oracle.is_free(EXTENT));
    run(&mut oracle, 1).unwrap();
    oracle.write_succeeded(1).unwrap();
    assert!(oracle.is_free(EXTENT));
    read(&mut oracle, 1).unwrap();
    assert!(oracle.open().is_empty());
}

#[test]
fn what_was_acknowledged_is_read() {
    let mut oracle = oracle(Kind::Write);
    run(&mut oracle, 1).unwrap();
    oracle.write_succeeded(1).unwrap();
    assert!(read(&mut oracle, 0).unwrap_err().contains("is acknowledged"));
    assert!(read(&mut oracle, 9).unwrap_err().contains("has not run"));
}

#[test]
fn a_write_answered_good_has_run_and_one_answered_with_an_error_has_not() {
    assert!(oracle(Kind::Write).write_succeeded(1).is_err());
    let mut oracle = oracle(Kind::Write);
    run(&mut oracle, 1).unwrap();
    assert!(oracle.failed(1, "BUSY").is_err());
}

#[test]
fn nothing_runs_twice_nor_after_its_end() {
    let mut twice = oracle(Kind::Write);
    run(&mut twice, 1).unwrap();
    assert!(run(&mut twice, 1).unwrap_err().contains("twice"));
    let mut late = oracle(Kind::Write);
    late.failed(1, "BUSY").unwrap();
    assert!(run(&mut late, 1).unwrap_err().contains("after its end"));
}

#[test]
fn a_write_in_doubt_may_run_until_its_session_is_replaced() {
    let mut oracle = oracle(Kind::Write);
    oracle.doubted(1).unwrap();
    oracle.session_replaced(1);
    run(&mut oracle, 1).unwrap();
    assert!(!oracle.is_free(EXTENT));
    oracle.session_replaced(0);
    assert!(oracle.is_free(EXTENT));
    assert!(run(&mut oracle, 1).is_err());
}

#[test]
fn bytes_of_another_place_are_found() {
    let mut oracle = oracle(Kind::Write);
    let bytes = bytes(&oracle, 1);
    assert!(oracle.written(1, EXTENT.first, &bytes).is_err());
    assert!(oracle.written(EXTENT.unit, EXTENT.first + 1, &bytes).is_err());
}

#[test]
fn the_writes_of_an_initiator_that_is_preempted_do_not_run() {
    let mut oracle = oracle(Kind::Write);
    oracle.bar(EXTENT.unit, 1);
    oracle.bar(EXTENT.unit, 0);
    assert!(run(&mut oracle, 1).unwrap_err().contains("held the unit"));
    oracle.unbar(EXTENT.unit);
    run(&mut oracle, 1).unwrap();
}
