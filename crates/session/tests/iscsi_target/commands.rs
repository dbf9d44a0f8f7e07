//! SCSI commands: order, window, tags, extensions (RFC 7143 sections 4.2.2.1, 11.2.2 and 11.3).

use lunette_pdu::{
    Ahs, Cid, Isid, LoginRequest, NopOut, RejectReason, Residual, ScsiCommand, SerialNumber, TaskAttribute,
};
use lunette_session::iscsi_target::{BufferShare, Response};
use lunette_session::keys::Offer;
use lunette_session::limits::{
    COMMAND_WINDOW, MAX_COMMAND_WINDOW, MAX_EXTRA_COMMANDS, MAX_IMMEDIATE_TASKS, UNUSED_WINDOW_TIME,
};

use crate::harness::{INITIATOR, Peer, Setup, TARGET, command, login_request, nop_out, read, text, write};

#[test]
fn a_command_reaches_the_device_as_it_was_sent() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    let cdb = std::array::from_fn(|n| n as u8 + 1);
    peer.command(ScsiCommand { cdb, attr: TaskAttribute::ORDERED, ..read(7, 512) }, &[]);
    let got = &peer.driver.commands[0];
    assert_eq!((got.cdb, got.attribute, got.lun), (cdb, TaskAttribute::ORDERED, read(0, 0).lun));
    assert_eq!((got.data_in_len, got.data_out_len), (512, 0));
    assert!(got.cdb_rest.is_empty());
}

#[test]
fn commands_without_data_are_answered_in_the_order_of_completion() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    for itt in 0..3 {
        peer.command(command(itt), &[]);
    }
    for index in [1, 2, 0] {
        let task = peer.driver.commands[index].task;
        peer.driver.complete(task, Response::default());
        let (response, data) = peer.scsi_response();
        assert_eq!((response.itt.0, response.status, response.residual), (index as u32, 0, Residual::None));
        assert!(data.is_empty());
        // A task ends once.
        peer.driver.complete(task, Response::default());
        peer.driver.act(|c| c.abort(task));
        peer.silence();
    }
}

#[test]
fn a_command_that_runs_holds_up_nobody() {
    for request in [command(1), read(1, 4096), write(1, 4096)] {
        let mut peer = Peer::logged_in(Setup::default()).manual();
        peer.command(request, &[]);
        peer.nop_out(nop_out(2), b"still there?");
        assert_eq!(peer.nop_in().0.itt.0, 2);
        assert!(peer.driver.wants_input());
    }
}

#[test]
fn extended_cdbs_and_read_lengths_come_from_additional_headers() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    let mut ahs = [0; 256];
    let mut len = Ahs::ExtendedCdb(&[1, 2, 3, 4, 5]).emit(&mut ahs).unwrap();
    len += Ahs::BidiReadLength(777).emit(&mut ahs[len..]).unwrap();
    let both = ScsiCommand { read: true, cmd_sn: peer.cmd_sn, ..write(1, 512) };
    peer.cmd_sn = peer.cmd_sn.next();
    peer.command_numbered(both, &ahs[..len], &[]);
    let got = &peer.driver.commands[0];
    assert_eq!(*got.cdb_rest, [1, 2, 3, 4, 5]);
    assert_eq!((got.data_in_len, got.data_out_len), (777, 512));
}

#[test]
fn additional_headers_that_make_no_sense_are_refused() {
    let mut twice = [0; 64];
    let mut len = Ahs::ExtendedCdb(&[1]).emit(&mut twice).unwrap();
    len += Ahs::ExtendedCdb(&[2]).emit(&mut twice[len..]).unwrap();
    let two_lengths = [[0, 5, 2, 0, 0, 0, 2, 0]; 2].concat();
    for ahs in [&twice[..len], &two_lengths, &[0, 5, 9, 0, 0, 0, 0, 0], &[0, 9, 1, 0], &[0, 0, 1, 0]] {
        let mut peer = Peer::logged_in(Setup::default());
        let numbered = ScsiCommand { cmd_sn: peer.cmd_sn, ..command(1) };
        peer.cmd_sn = peer.cmd_sn.next();
        peer.command_numbered(numbered, ahs, &[]);
        peer.cut_off(RejectReason::INVALID_PDU_FIELD);
        assert!(peer.driver.commands.is_empty());
    }
}

#[test]
fn flags_that_contradict_the_length_are_refused() {
    for request in [
        ScsiCommand { expected_data_transfer_length: 1, ..command(1) },
        ScsiCommand { final_: false, ..read(1, 1) },
        command(u32::MAX),
    ] {
        let mut peer = Peer::logged_in(Setup::default());
        peer.command(request, &[]);
        peer.cut_off(RejectReason::INVALID_PDU_FIELD);
    }
}

#[test]
fn the_window_closes_at_its_limit_and_opens_again() {
    for first_cmd_sn in [1, u32::MAX - 60] {
        let mut peer = Peer::logged_in(Setup { first_cmd_sn, ..Setup::default() }).manual();
        let mut itt = 0;
        loop {
            let before = peer.driver.commands.len();
            peer.command(command(itt), &[]);
            if peer.driver.commands.len() == before {
                break;
            }
            itt += 1;
            assert!(itt < 1000, "the window never closes");
        }
        assert_eq!(itt, COMMAND_WINDOW);
        // The command outside the window was ignored without a trace.
        peer.cmd_sn = SerialNumber(peer.cmd_sn.0.wrapping_sub(1));
        peer.nop_out(nop_out(5000), &[]);
        let (nop, _) = peer.nop_in();
        assert_eq!(nop.exp_cmd_sn, peer.cmd_sn);
        assert_eq!(nop.max_cmd_sn.next(), nop.exp_cmd_sn, "closed");
        let task = peer.driver.commands[17].task;
        peer.driver.complete(task, Response::default());
        let (response, _) = peer.scsi_response();
        assert_eq!(response.max_cmd_sn, response.exp_cmd_sn, "open for one");
        peer.command(command(6000), &[]);
        assert_eq!(peer.driver.commands.len() as u32, itt + 1);
        for index in 0..peer.driver.commands.len() {
            let task = peer.driver.commands[index].task;
            peer.driver.complete(task, Response::default());
        }
        assert_eq!(peer.rest().len() as u32, itt);
        peer.nop_out(nop_out(5000), &[]);
        let (nop, _) = peer.nop_in();
        assert_eq!(nop.max_cmd_sn.distance_from(nop.exp_cmd_sn), COMMAND_WINDOW.cast_signed() - 1);
    }
}

/// Commands that the initiator may send, as a ping tells.
fn window_of(peer: &mut Peer) -> u32 {
    peer.nop_out(nop_out(0xffff), &[]);
    let (nop, _) = peer.nop_in();
    nop.max_cmd_sn.next().distance_from(nop.exp_cmd_sn).unsigned_abs()
}

/// Fills the window with commands, which are answered at once.
fn fill_window(peer: &mut Peer, window: u32) {
    for itt in 0..window {
        peer.command(command(itt), &[]);
        peer.scsi_response();
    }
    peer.driver.fit_window();
}

/// Grows the window by an initiator so far away that all answers are under way at one time, until it grows no more.
fn grow_window(peer: &mut Peer) -> u32 {
    let mut window = COMMAND_WINDOW;
    loop {
        peer.holds_back = peer.checker.stat_sn;
        fill_window(peer, window);
        peer.holds_back = None;
        match window_of(peer) {
            same if same == window => return window,
            wider => window = wider,
        }
    }
}

#[test]
fn the_window_grows_for_an_initiator_far_away_and_stays_for_one_that_is_near() {
    let mut peer = Peer::logged_in(Setup::default());
    for _ in 0..3 {
        fill_window(&mut peer, COMMAND_WINDOW);
        assert_eq!(window_of(&mut peer), COMMAND_WINDOW, "each answer was acknowledged by the next command");
    }
    assert_eq!(grow_window(&mut peer), MAX_COMMAND_WINDOW);
}

/// A share of the buffers that is held in full, and one of which nothing is.
const USED_UP: BufferShare = BufferShare { held_bytes: 1, most_bytes: 1 };
const UNUSED: BufferShare = BufferShare { held_bytes: 0, most_bytes: 1 };

#[test]
fn the_window_grows_only_when_no_connection_of_the_session_has_used_up_its_share() {
    let two_connections =
        || Setup { offer: Offer { max_connections: 2, ..Offer::default() }, ..Setup::keys(&[("MaxConnections", "2")]) };
    let mut a = Peer::logged_in(two_connections());
    let mut b = Peer::connect(two_connections());
    b.driver.share(&a.driver);
    let (tsih, names) = (a.driver.session().unwrap().tsih, [("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    b.login(LoginRequest { tsih, cid: Cid(9), ..login_request() }, &text(&names));
    assert!(b.login_response().0.status.is_success());
    let use_up = |a: &mut Peer, share_of_b| {
        let window = window_of(a);
        a.holds_back = a.checker.stat_sn;
        for itt in 0..window {
            a.command(command(itt), &[]);
            a.scsi_response();
        }
        a.driver.fit_window_within(|connection| if connection == b.driver.handle { share_of_b } else { UNUSED });
        a.holds_back = None;
        window_of(a)
    };
    assert_eq!(use_up(&mut a, USED_UP), COMMAND_WINDOW);
    assert_eq!(use_up(&mut a, UNUSED), 2 * COMMAND_WINDOW);
    use_up(&mut a, USED_UP);
    for itt in 0..COMMAND_WINDOW {
        a.command(command(itt), &[]);
        a.scsi_response();
    }
    assert_eq!(window_of(&mut a), COMMAND_WINDOW, "MaxCmdSN has stood still");
}

/// A session of its own beside that of `other`.
fn beside(other: &Peer, number: u8) -> Peer {
    let mut peer = Peer::connect(Setup::default());
    peer.driver.share(&other.driver);
    let isid = Isid([0x80, 0, 0, 0, 0, number]);
    peer.login(
        LoginRequest { isid, ..login_request() },
        &text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]),
    );
    assert!(peer.login_response().0.status.is_success());
    peer
}

#[test]
fn wide_windows_leave_others_room_and_give_it_back() {
    let mut peers = vec![Peer::logged_in(Setup::default())];
    let mut extra = grow_window(&mut peers[0]) - COMMAND_WINDOW;
    for number in 1..40 {
        let mut peer = beside(peers.last().expect("there is one"), number);
        let window = grow_window(&mut peer);
        assert!(window > COMMAND_WINDOW, "session {number} finds some");
        extra += window - COMMAND_WINDOW;
        peers.push(peer);
    }
    assert!(extra <= MAX_EXTRA_COMMANDS && extra > MAX_EXTRA_COMMANDS / 2, "{extra}");
    let mut last = peers.pop().expect("there is one");
    for peer in &mut peers {
        peer.driver.remove();
    }
    assert_eq!(grow_window(&mut last), MAX_COMMAND_WINDOW);
}

#[test]
fn places_that_were_promised_go_to_others_only_when_they_have_been_used() {
    let mut peers = vec![Peer::logged_in(Setup::default())];
    let mut extra = 0;
    for number in 1..=40 {
        let last = peers.last_mut().expect("there is one");
        grow_window(last);
        last.driver.fit_window_within(|_| USED_UP);
        extra += window_of(last) - COMMAND_WINDOW;
        let next = beside(last, number);
        peers.push(next);
    }
    assert!(extra <= MAX_EXTRA_COMMANDS && extra > MAX_EXTRA_COMMANDS / 2, "{extra}");
    let mut last = peers.pop().expect("there is one");
    assert!(grow_window(&mut last) < MAX_COMMAND_WINDOW, "what was promised to others is not free");
    for peer in &mut peers {
        let promised = window_of(peer);
        fill_window(peer, promised - COMMAND_WINDOW);
        assert_eq!(window_of(peer), COMMAND_WINDOW, "MaxCmdSN has stood still");
    }
    assert_eq!(grow_window(&mut last), MAX_COMMAND_WINDOW);
}

#[test]
fn an_initiator_that_uses_little_of_its_window_gives_places_back_as_it_sends() {
    let mut peer = Peer::logged_in(Setup::default());
    let wide = grow_window(&mut peer);
    peer.driver.narrow_unused_window();
    let mut width = wide;
    while width > COMMAND_WINDOW {
        for _ in 0..2 {
            peer.pass(UNUSED_WINDOW_TIME * 2 / 3);
            peer.command(command(1), &[]);
            peer.scsi_response();
        }
        peer.driver.narrow_unused_window();
        width /= 2;
        let promised = window_of(&mut peer);
        assert!(promised > wide / 2, "MaxCmdSN does not go back");
    }
    let promised = window_of(&mut peer);
    fill_window(&mut peer, promised - COMMAND_WINDOW);
    assert_eq!(window_of(&mut peer), COMMAND_WINDOW);
}

#[test]
fn a_number_outside_the_window_or_seen_before_is_ignored_with_its_data() {
    let mut peer = Peer::logged_in(Setup { first_cmd_sn: 5, ..Setup::default() }).manual();
    for cmd_sn in [4, 5 + COMMAND_WINDOW, 5 + (1 << 31), 0] {
        let ignored = ScsiCommand { cmd_sn: SerialNumber(cmd_sn), ..write(9, 600) };
        peer.command_numbered(ignored, &[], &[0xaa; 600]);
        peer.silence();
    }
    assert!(peer.driver.commands.is_empty());
    peer.command(command(9), &[]);
    assert_eq!(peer.driver.commands.len(), 1);
    let duplicate = ScsiCommand { cmd_sn: SerialNumber(5), ..command(10) };
    peer.command_numbered(duplicate, &[], &[]);
    peer.silence();
    assert_eq!(peer.driver.commands.len(), 1);
}

#[test]
fn a_gap_on_the_only_connection_cannot_be_filled() {
    let mut peer = Peer::logged_in(Setup::default());
    peer.cmd_sn = peer.cmd_sn.next();
    peer.command(command(1), &[]);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

#[test]
fn command_numbers_wrap() {
    let mut peer = Peer::logged_in(Setup { first_cmd_sn: u32::MAX - 300, ..Setup::default() });
    for itt in 0..600 {
        peer.command(command(itt), &[]);
        assert_eq!(peer.scsi_response().0.exp_cmd_sn, peer.cmd_sn);
    }
}

#[test]
fn a_tag_in_use_is_refused_and_its_number_used_up() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(command(1), &[]);
    peer.command(command(1), &[]);
    peer.rejected(RejectReason::TASK_IN_PROGRESS);
    peer.command(command(2), &[]);
    peer.silence();
    assert_eq!(peer.driver.commands.len(), 2);
}

#[test]
fn a_tag_may_be_used_again_after_its_task() {
    let mut peer = Peer::logged_in(Setup::default());
    for _ in 0..5 {
        peer.command(command(1), &[]);
        assert_eq!(peer.scsi_response().0.itt.0, 1);
    }
}

#[test]
fn immediate_commands_have_their_own_limit() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    let immediate = |itt| ScsiCommand { immediate: true, ..command(itt) };
    for itt in 0..MAX_IMMEDIATE_TASKS {
        peer.command(immediate(itt), &[]);
        peer.silence();
    }
    peer.command(immediate(100), &[]);
    peer.rejected(RejectReason::TOO_MANY_IMMEDIATE_COMMANDS);
    let task = peer.driver.commands[3].task;
    peer.driver.complete(task, Response::default());
    assert_eq!(peer.scsi_response().0.exp_cmd_sn, SerialNumber(1), "immediate commands use up no number");
    peer.command(immediate(100), &[]);
    peer.silence();
    assert_eq!(peer.driver.commands.len() as u32, MAX_IMMEDIATE_TASKS + 1);
}

#[test]
fn a_discovery_session_has_no_commands() {
    let mut peer = Peer::discovering(Setup::default());
    peer.command(command(1), &[]);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

#[test]
fn an_old_tag_never_means_a_new_task() {
    let mut peer = Peer::logged_in(Setup::default()).manual();
    peer.command(command(1), &[]);
    let old = peer.driver.commands[0].task;
    peer.driver.act(|c| c.abort(old));
    for itt in 0..70_000 {
        peer.driver.commands.clear();
        peer.command(command(itt), &[]);
        let task = peer.driver.commands[0].task;
        assert_ne!(task, old);
        peer.driver.complete(task, Response::default());
        peer.scsi_response();
    }
}

/// The response of `a` is fenced: it waits for what `b` has yet to acknowledge.
#[test]
fn data_of_a_task_whose_response_waits_does_not_hold_up_what_follows() {
    let fenced = || Setup {
        offer: Offer { max_connections: 2, ..Offer::default() },
        ..Setup::keys(&[("MaxConnections", "2"), ("TaskReporting", "ResponseFence")])
    };
    let mut a = Peer::logged_in(fenced()).manual();
    let mut b = Peer::connect(fenced());
    b.driver.share(&a.driver);
    let (tsih, names) = (a.driver.session().unwrap().tsih, [("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    b.login(LoginRequest { tsih, cid: Cid(9), ..login_request() }, &text(&names));
    assert!(b.login_response().0.status.is_success());
    a.command(write(1, 512), &[7; 512]);
    a.nop_out(nop_out(2), &[]);
    a.silence();
    let task = a.driver.commands[0].task;
    // A unit attention that tells of commands that were cleared.
    let sense = vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2f, 0];
    a.driver.complete(task, Response { status: 2, sense, ..Response::default() });
    assert_eq!(a.nop_in().0.itt.0, 2);
    a.silence();
    assert_eq!(a.driver.data_out, []);
    b.cmd_sn = a.cmd_sn;
    b.nop_in();
    b.nop_out(NopOut { immediate: true, ..nop_out(3) }, &[]);
    assert_eq!(a.scsi_response().0.status, 2);
}
