use lunette_scsi::TaskAttribute::{self, HeadOfQueue, Ordered, Simple};
use proptest::prelude::*;

use super::TaskSet;

/// Adds a task and tells what begins thereby.
fn add(set: &mut TaskSet<u32>, key: u32, attribute: TaskAttribute) -> Vec<u32> {
    set.add(key, attribute);
    set.begin()
}

fn end(set: &mut TaskSet<u32>, key: u32) -> Vec<u32> {
    set.remove(key);
    set.begin()
}

#[test]
fn an_ordered_task_waits_for_the_older_and_holds_the_younger() {
    let mut set = TaskSet::new([1, 2]);
    assert!(add(&mut set, 3, Ordered).is_empty());
    assert!(add(&mut set, 4, Simple).is_empty());
    assert!(add(&mut set, 5, Simple).is_empty());
    assert!(add(&mut set, 6, Ordered).is_empty());
    assert!(end(&mut set, 2).is_empty());
    assert_eq!(end(&mut set, 1), [3]);
    assert_eq!(end(&mut set, 3), [4, 5]);
    assert_eq!(set.held().collect::<Vec<_>>(), [6]);
    assert!(end(&mut set, 4).is_empty());
    assert_eq!(end(&mut set, 5), [6]);
    assert!(!set.is_over());
    assert!(end(&mut set, 6).is_empty());
    assert!(set.is_over());
}

#[test]
fn a_head_of_queue_task_begins_at_once_and_holds_all_that_has_not_begun() {
    let mut set = TaskSet::new([1]);
    assert!(add(&mut set, 2, Ordered).is_empty());
    assert_eq!(add(&mut set, 3, HeadOfQueue), [3]);
    assert_eq!(add(&mut set, 4, HeadOfQueue), [4], "beside the other");
    assert!(end(&mut set, 1).is_empty(), "though nothing else is older");
    assert!(end(&mut set, 3).is_empty());
    assert_eq!(end(&mut set, 4), [2]);
    let mut set = TaskSet::new([1]);
    assert_eq!(add(&mut set, 2, HeadOfQueue), [2]);
    assert!(add(&mut set, 3, Simple).is_empty());
    assert_eq!(end(&mut set, 2), [3]);
    assert!(set.is_over(), "what has begun is SIMPLE");
}

#[test]
fn an_aborted_task_holds_nothing() {
    let mut set = TaskSet::new([1]);
    assert!(add(&mut set, 2, Ordered).is_empty());
    assert!(add(&mut set, 3, Simple).is_empty());
    assert_eq!(end(&mut set, 2), [3]);
    assert!(set.is_over());
}

proptest! {
    /// Whatever comes and ends, in whatever order: all tasks begin once, and never beside one that they must not run
    /// beside.
    #[test]
    fn tasks_begin_in_an_order_that_sam_allows(
        kinds in prop::collection::vec(0..3u8, 1..40),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 200),
    ) {
        let attributes: Vec<_> = kinds.iter().map(|kind| [Simple, Ordered, HeadOfQueue][usize::from(*kind)]).collect();
        let mut set = TaskSet::new([]);
        let (mut next, mut running, mut begun): (u32, Vec<u32>, Vec<u32>) = (0, Vec::new(), Vec::new());
        let mut present: Vec<u32> = Vec::new();
        for choice in choices {
            let can_add = (next as usize) < attributes.len();
            let pick = choice.index(running.len() + usize::from(can_add) + usize::from(running.is_empty() && !can_add));
            let begins = if pick < running.len() {
                let key = running.remove(pick);
                present.retain(|other| *other != key);
                end(&mut set, key)
            } else if can_add {
                next += 1;
                present.push(next - 1);
                add(&mut set, next - 1, attributes[(next - 1) as usize])
            } else {
                break;
            };
            for key in begins {
                prop_assert!(!begun.contains(&key));
                let head = present.iter().any(|other| attributes[*other as usize] == HeadOfQueue);
                let older = present.iter().filter(|other| **other < key);
                match attributes[key as usize] {
                    HeadOfQueue => {}
                    Ordered => prop_assert!(!head && older.count() == 0),
                    _ => prop_assert!(!head && older.into_iter().all(|other| attributes[*other as usize] != Ordered)),
                }
                begun.push(key);
                running.push(key);
            }
            prop_assert!(present.is_empty() || !running.is_empty(), "something can always go on");
        }
        let begun_and_held = begun.len() + set.held().count();
        prop_assert_eq!(begun_and_held, next as usize, "none is lost");
    }
}
