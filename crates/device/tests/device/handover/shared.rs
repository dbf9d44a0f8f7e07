//! Handovers of a server of a shared unit: what the gateways have in common is theirs.

use lunette_scsi::{AdditionalSense, Status};

use super::Successor;
use super::parts::attentions;
use crate::fixture::{Fixture, cdb};
use crate::gateways::{Gateways, done, keys};

const CLEAR: u8 = 3;
const SWP: u8 = 0x08;

fn select(server: &Fixture, swp: u8) {
    let mut list = server.read(&[0x1a, 0x08, 0x0a, 0, 255]);
    (list[0], list[2]) = (0, 0);
    list[4] &= 0x7f;
    list[8] = swp;
    assert_eq!(server.run(&[0x15, 0x10, 0, 0, list.len() as u8], &list).status, Status::GOOD);
}

#[test]
fn nothing_changes_for_initiators_when_nothing_has_changed() {
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let gateways = Gateways::of(&[&first, &second]);
    done(&first, &first.nexus, 0, 0, [0, 7]);
    done(&second, &second.nexus, 0, 0, [0, 8]);
    select(&first, SWP);
    attentions(&second, &second.nexus);
    let (after, _) = Successor::of(&second).take_over(&second, &[]);
    let protected = |server: &Fixture| server.refused(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 512]).code;
    assert_eq!(protected(&after), AdditionalSense::SOFTWARE_WRITE_PROTECTED, "before anything is published");
    gateways.join(1, &after.unit);
    after.resume_background();
    assert_eq!(attentions(&after, &after.nexus), []);
    assert_eq!(keys(&after), (2, vec![7, 8]));
    assert_eq!(attentions(&first, &first.nexus), [], "the other servers do not notice");
    done(&after, &after.nexus, CLEAR, 0, [8, 0]);
    assert_eq!(attentions(&first, &first.nexus), [AdditionalSense::RESERVATIONS_PREEMPTED]);
    assert_eq!(keys(&first), (3, vec![]));
}

#[test]
fn nexuses_learn_of_what_has_changed_in_between() {
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let gateways = Gateways::of(&[&first, &second]);
    done(&first, &first.nexus, 0, 0, [0, 7]);
    done(&second, &second.nexus, 0, 0, [0, 8]);
    let successor = Successor::of(&second);
    gateways.change(|state| state.deaf = vec![1]);
    let (after, _) = successor.take_over(&second, &[]);
    done(&first, &first.nexus, CLEAR, 0, [7, 0]);
    select(&first, SWP);
    gateways.change(|state| state.deaf.clear());
    gateways.join(1, &after.unit);
    let news = [AdditionalSense::MODE_PARAMETERS_CHANGED, AdditionalSense::RESERVATIONS_PREEMPTED];
    assert_eq!(attentions(&after, &after.nexus), news);
    assert_eq!(keys(&after).1, []);
}

#[test]
fn what_is_published_already_is_not_overwritten() {
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let gateways = Gateways::of(&[&first, &second]);
    done(&first, &first.nexus, 0, 0, [0, 7]);
    let left = super::handover(&second, &[]);
    gateways.change(|state| state.deaf = vec![1]);
    done(&first, &first.nexus, 0, 0, [7, 9]);
    gateways.change(|state| state.deaf.clear());
    let successor = Successor::of(&second);
    gateways.join(1, &successor.unit);
    successor.unit.inherit(&left.units[0]).unwrap();
    let nexus = successor.device.attach(second.nexus.name().clone());
    nexus.inherit(&left.sessions[0].nexus);
    let after = second.successor(successor.device, successor.unit, nexus);
    assert_eq!(keys(&after), (2, vec![9]));
    assert_eq!(after.run_on(&after.nexus, [0; 8], cdb(&[0x00]), &[]).status, Status::GOOD);
}
