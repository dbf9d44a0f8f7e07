use super::*;

const LOAD: Load = Load {
    commands: 1,
    depth: 1,
    block_len: 16,
    blocks: 8,
    longest: 4,
    pause_us: 0,
    work_us: 0,
    manage: 0,
    news: 0,
    news_pause_us: 0,
    target_pool_bytes: 0,
};
const EXTENT: Extent = Extent { unit: 0, first: 2, blocks: 3 };

fn oracle(kind: Kind) -> Oracle {
    let mut oracle = Oracle::new(&LOAD);
    oracle.submitted(kind, EXTENT);
    oracle.delivered(1, kind, EXTENT).unwrap();
    oracle
}

fn bytes(oracle: &Oracle, writer: Writer) -> Vec<u8> {
    let mut bytes = vec![0; EXTENT.blocks * LOAD.block_len];
    oracle.medium.fill(EXTENT.unit, EXTENT.first, &[writer; 3], &mut bytes);
    bytes
}

fn write(oracle: &mut Oracle, user: User) -> Result<Vec<Writer>, Broken> {
    let bytes = bytes(oracle, user);
    oracle.execute(user, Some(&bytes))
}

#[test]
fn a_write_and_a_read_of_it_are_right() {
    let mut oracle = oracle(Kind::Write);
    assert!(!oracle.is_free(EXTENT));
    write(&mut oracle, 1).unwrap();
    oracle.succeeded(1, None).unwrap();
    assert!(oracle.is_free(EXTENT));
    oracle.submitted(Kind::Read, EXTENT);
    assert_eq!(oracle.execute(2, None).unwrap(), [1, 1, 1]);
    let read = bytes(&oracle, 1);
    oracle.succeeded(2, Some(&read)).unwrap();
    assert!(oracle.open().is_empty());
}

#[test]
fn a_command_runs_once_and_is_delivered_once() {
    let mut oracle = oracle(Kind::Write);
    assert!(oracle.delivered(1, Kind::Write, EXTENT).is_err());
    write(&mut oracle, 1).unwrap();
    assert!(write(&mut oracle, 1).is_err());
}

#[test]
fn a_command_that_was_answered_good_has_run_and_one_with_an_error_has_not() {
    assert!(oracle(Kind::Write).succeeded(1, None).is_err());
    let mut ran = oracle(Kind::Write);
    write(&mut ran, 1).unwrap();
    assert!(ran.failed(1, 2).is_err());
    oracle(Kind::Write).failed(1, 2).unwrap();
}

#[test]
fn nothing_happens_after_the_end() {
    let mut aborted = oracle(Kind::Write);
    aborted.aborted(1).unwrap();
    assert!(write(&mut aborted, 1).is_err());
    assert!(aborted.succeeded(1, None).is_err(), "and no second end comes");
    let mut lost = oracle(Kind::Write);
    lost.lost(1).unwrap();
    write(&mut lost, 1).unwrap();
    let mut replaced = oracle(Kind::Write);
    replaced.lost(1).unwrap();
    replaced.session_replaced();
    assert!(write(&mut replaced, 1).is_err());
    assert!(replaced.is_free(EXTENT));
}

#[test]
fn other_bytes_are_noticed_on_both_sides() {
    let mut oracle = oracle(Kind::Write);
    let wrong = bytes(&oracle, 7);
    assert!(oracle.execute(1, Some(&wrong)).is_err());
    let mut oracle = self::oracle(Kind::Read);
    oracle.execute(1, None).unwrap();
    assert!(oracle.succeeded(1, Some(&wrong)).is_err());
}

#[test]
fn a_read_that_misses_an_acknowledged_write_is_noticed() {
    let mut oracle = oracle(Kind::Write);
    write(&mut oracle, 1).unwrap();
    oracle.succeeded(1, None).unwrap();
    oracle.submitted(Kind::Read, EXTENT);
    oracle.medium.write(EXTENT.unit, EXTENT.first, EXTENT.blocks, 0);
    oracle.execute(2, None).unwrap();
    let old = bytes(&oracle, 0);
    assert!(oracle.succeeded(2, Some(&old)).unwrap_err().contains("acknowledged"));
}
