//! The connections of a session, served and lost.

use lunette_pdu::{Cid, LoginRequest, LogoutResponseCode, SerialNumber};

use super::{cut, first, join, log_out, log_out_cid, setup, tag};
use crate::harness::{INITIATOR, Peer, TARGET, command, login_request, text};

/// All connections of the session, and those of them that are served.
fn members(peer: &Peer) -> (Vec<u32>, Vec<u32>) {
    peer.driver.in_session(|session, _| (session.members().collect(), session.connections().collect()))
}

#[test]
fn a_lost_connection_keeps_its_session_and_its_number_until_it_is_logged_out() {
    let mut a = first();
    a.command(command(1), &[]);
    cut(&mut a);
    assert_eq!(members(&a), (vec![1], vec![]));
    let mut b = join(&mut a, Cid(7));
    assert!(b.driver.displaced.is_empty() && !a.driver.detached);
    log_out(&mut a, &mut b, SerialNumber(0));
    assert_eq!(log_out_cid(&mut b, a.cid, SerialNumber(0)), LogoutResponseCode::CID_NOT_FOUND);
    let (mut all, served) = members(&b);
    all.sort_unstable();
    assert_eq!((all, served), (vec![1, 2], vec![2]));
    b.driver.remove();
    assert_eq!(a.driver.sessions.borrow().len(), 1, "tasks wait");
    a.driver.remove();
    assert!(a.driver.sessions.borrow().is_empty());
}

#[test]
fn at_level_2_a_login_with_the_number_of_another_connection_detaches_it() {
    for lost in [false, true] {
        let mut a = first();
        a.command(command(1), &[]);
        if lost {
            cut(&mut a);
        }
        let cid = a.cid;
        let b = join(&mut a, cid);
        assert_eq!(b.driver.displaced, []);
        a.collect();
        assert!(a.driver.detached);
        assert_eq!(members(&b).1, [2]);
        let mut new = Peer::connect(setup());
        new.driver.share(&b.driver);
        new.login(login_request(), &text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]));
        new.driver.displaced.sort_unstable();
        assert_eq!(new.driver.displaced, [1, 2], "session reinstatement ends all of it");
    }
}

/// The initiator was asked to log out of the session, so nothing waits for long.
#[test]
fn a_session_that_is_to_be_logged_out_keeps_no_tasks() {
    let grace = std::time::Duration::from_secs(3);
    for (by_login, already_lost) in [(false, false), (true, false), (false, true)] {
        let mut a = first();
        a.command(command(1), &[]);
        let task = tag(&a);
        let mut b = join(&mut a, Cid(7));
        if already_lost {
            cut(&mut a);
        }
        let now = b.driver.now;
        b.driver.in_session(|session, _| session.request_logout(grace, now));
        b.rest();
        if already_lost {
            a.collect();
            assert!(a.driver.gone, "it is not waited for");
            continue;
        }
        if by_login {
            let cid = a.cid;
            assert_eq!(join(&mut b, cid).driver.displaced, [a.driver.handle], "its tasks end");
            continue;
        }
        b.driver.automatic = true;
        assert_eq!(log_out_cid(&mut b, a.cid, SerialNumber(0)), LogoutResponseCode::CLOSED);
        a.collect();
        assert!(!a.driver.detached && a.driver.suspended.is_none());
        assert_eq!(b.driver.leaving, [a.driver.handle], "the driver ends the connection with {task:?}");
    }
}

/// A driver may call another connection by the name of one that is gone.
#[test]
fn events_of_a_connection_that_is_gone_are_dropped() {
    let mut a = first();
    a.command(command(1), &[]);
    let mut b = join(&mut a, Cid(7));
    assert_eq!(log_out_cid(&mut b, a.cid, SerialNumber(0)), LogoutResponseCode::CLOSED);
    // Its driver has not heard of that.
    assert!(!a.driver.detached);
    a.driver.remove();
    let mut c = Peer::connect(setup());
    c.driver.share(&b.driver);
    c.cmd_sn = a.cmd_sn;
    c.driver.handle = a.driver.handle;
    let names = text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    let tsih = b.driver.session().unwrap().tsih;
    c.login(LoginRequest { tsih, cid: Cid(9), ..login_request() }, &names);
    assert!(c.login_response().0.status.is_success());
    assert!(!c.driver.detached && !c.driver.gone);
}
