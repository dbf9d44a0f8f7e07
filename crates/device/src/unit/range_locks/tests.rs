//! Claims against a list of claims in the order of their arrival.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

fn extent(offset: u64, len: u64) -> Extent {
    Extent { offset, len }
}

/// A claim with a count of its wake-ups.
struct Claimed {
    claim: Claim,
    extent: Extent,
    mode: ClaimMode,
    waited: bool,
    /// Commands were passing when it was made.
    passing: bool,
    told: Arc<AtomicUsize>,
}

/// A waiter that counts its wake-ups.
fn counter() -> (Completion, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    let count = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    (Completion::call(count), told)
}

fn claim(locks: &Arc<RangeLocks>, extent: Extent, mode: ClaimMode) -> Claimed {
    let passing = mode == ClaimMode::Exclusive && locks.passing.load(Ordering::Relaxed) > 0;
    let claim = locks.claim(extent, mode);
    let (counter, told) = counter();
    let turn = claim.pending_grant();
    if let Some(turn) = &turn {
        turn.wait(counter);
    }
    Claimed { claim, extent, mode, waited: turn.is_some(), passing, told }
}

/// Checks that a claim is granted when no earlier one excludes it and nothing passes that passed before it, and that
/// its waiter is woken once, not before.
fn check(claims: &mut [Claimed], passages: &[Passage<'_>]) {
    for at in 0..claims.len() {
        claims[at].passing &= !passages.is_empty();
        let later = &claims[at];
        let free = !later.passing
            && claims[..at].iter().all(|earlier| {
                let shared = earlier.mode == ClaimMode::Shared && later.mode == ClaimMode::Shared;
                let disjoint = earlier.extent.offset + earlier.extent.len <= later.extent.offset
                    || later.extent.offset + later.extent.len <= earlier.extent.offset;
                shared || disjoint
            });
        assert_eq!(later.claim.is_granted(), free, "claim {at}");
        assert_eq!(later.told.load(Ordering::Relaxed), usize::from(free && later.waited), "claim {at}");
    }
}

#[derive(Debug, Clone)]
enum Action {
    Claim(Extent, ClaimMode),
    Drop(prop::sample::Index),
    Pass,
    EndPassage(prop::sample::Index),
}

fn action() -> impl Strategy<Value = Action> {
    let mode = prop_oneof![3 => Just(ClaimMode::Shared), 1 => Just(ClaimMode::Exclusive)];
    prop_oneof![
        (0..20u64, 1..6u64, mode).prop_map(|(offset, len, mode)| Action::Claim(extent(offset, len), mode)),
        any::<prop::sample::Index>().prop_map(Action::Drop),
        Just(Action::Pass),
        any::<prop::sample::Index>().prop_map(Action::EndPassage),
    ]
}

proptest! {
    #[test]
    fn claims_are_granted_in_their_order_and_exclude_each_other(actions in prop::collection::vec(action(), 1..80)) {
        let locks = Arc::new(RangeLocks::default());
        let (mut claims, mut passages) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                Action::Claim(extent, mode) => claims.push(claim(&locks, extent, mode)),
                Action::Drop(index) if !claims.is_empty() => drop(claims.remove(index.index(claims.len()))),
                Action::Pass => {
                    let passage = locks.pass();
                    let free = claims.iter().all(|claimed: &Claimed| claimed.mode == ClaimMode::Shared);
                    prop_assert_eq!(passage.is_some(), free);
                    passages.extend(passage);
                }
                Action::EndPassage(index) if !passages.is_empty() => {
                    drop(passages.remove(index.index(passages.len())));
                }
                Action::Drop(_) | Action::EndPassage(_) => {}
            }
            check(&mut claims, &passages);
        }
        claims.clear();
        passages.clear();
        let state = locks.lock();
        prop_assert_eq!((locks.exclusive.load(Ordering::Relaxed), state.waiting), (0, 0));
        prop_assert_eq!(state.vacant.len(), state.records.len(), "nothing leaks");
    }
}

#[test]
fn an_exclusive_claim_is_not_overtaken_by_later_reads() {
    let locks = Arc::new(RangeLocks::default());
    let read = claim(&locks, extent(0, 8), ClaimMode::Shared);
    let alone = claim(&locks, extent(4, 1), ClaimMode::Exclusive);
    let later = claim(&locks, extent(0, 8), ClaimMode::Shared);
    let elsewhere = claim(&locks, extent(5, 3), ClaimMode::Shared);
    assert_eq!([&alone, &later, &elsewhere].map(|claimed| claimed.claim.is_granted()), [false, false, true]);
    drop(read);
    assert_eq!([&alone, &later].map(|claimed| claimed.claim.is_granted()), [true, false]);
    drop(alone);
    assert!(later.claim.is_granted());
}

#[test]
fn a_waiter_that_gives_up_frees_those_behind_it() {
    let locks = Arc::new(RangeLocks::default());
    let _read = claim(&locks, extent(0, 8), ClaimMode::Shared);
    let alone = claim(&locks, extent(4, 1), ClaimMode::Exclusive);
    let later = claim(&locks, extent(0, 8), ClaimMode::Shared);
    drop(alone);
    assert_eq!((later.claim.is_granted(), later.told.load(Ordering::Relaxed)), (true, 1));
}

#[test]
fn the_turn_of_a_claim_that_is_gone_comes_at_once() {
    let locks = Arc::new(RangeLocks::default());
    let first = locks.claim(extent(0, 1), ClaimMode::Exclusive);
    let second = locks.claim(extent(0, 1), ClaimMode::Exclusive);
    let turn = second.pending_grant().expect("the first is there");
    drop(second);
    // Another claim that waits has taken its slot.
    let _third = locks.claim(extent(0, 1), ClaimMode::Exclusive);
    let (counter, told) = counter();
    turn.wait(counter);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    drop(first);
}

/// Threads that pass read both halves of a value, and others change them one after the other under exclusive claims.
#[test]
fn those_that_pass_see_no_half_of_what_is_claimed_exclusively() {
    const ROUNDS: usize = 2_000;
    let locks = Arc::new(RangeLocks::default());
    let halves = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let claim = locks.claim(extent(0, 1), ClaimMode::Exclusive);
                    let (tell, granted) = std::sync::mpsc::channel();
                    if let Some(turn) = claim.pending_grant() {
                        turn.wait(Completion::call(move |_| tell.send(()).expect("this thread waits")));
                        granted.recv().expect("it is granted");
                    }
                    let [first, second] = &halves;
                    first.store(first.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    second.store(second.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    if let Some(_passage) = locks.pass() {
                        let [first, second] = halves.each_ref().map(|half| half.load(Ordering::Relaxed));
                        assert_eq!(first, second);
                    }
                }
            });
        }
    });
    assert_eq!(halves.map(AtomicUsize::into_inner), [2 * ROUNDS; 2]);
}
