//! Hosts that are templates: logins that wait for a host of their own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lunette_device::TargetDevice;
use lunette_pdu::LoginStatus;
use lunette_scsi::Lun;
use lunette_session::Authentication;
use lunette_session::iscsi_target::Host;
use lunette_target::{HostConfig, HostRequest, LunMap, Place, PortalConfig, ServerConfig, TargetConfig, Update};

use crate::common::{Initiator, Port, TARGET, Target, device, memory};

const SECOND: Port = Port { isid: 2, ..Port::A };

/// A target whose only host is a template.
struct Served {
    target: Target,
    device: Arc<TargetDevice>,
    asked: Receiver<HostRequest>,
}

fn template() -> HostConfig {
    let host = Host { name: "web".into(), is_template: true, ..Host::everyone() };
    HostConfig { host, luns: LunMap::only(Vec::new(), false).unwrap() }
}

impl Served {
    fn new(cores: usize) -> Self {
        Self::with(|config| config.cores = cores)
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let device = device(TARGET, vec![memory(), memory()]);
        let (ask, asked) = channel();
        let target = Target::of(vec![Arc::clone(&device)], |config| {
            config.targets[0].hosts = vec![template()];
            config.host_maker = Some(Arc::new(move |request| ask.send(request).unwrap()));
            change(config);
        });
        Self { target, device, asked }
    }

    /// Begins the login of an initiator that gets no answer yet.
    fn begin(&self, port: Port) -> Initiator {
        let mut initiator = Initiator::connect(self.target.address);
        initiator.send_login(port, &[]);
        initiator
    }

    /// Serves these hosts before the template.
    fn serve(&self, hosts: Vec<HostConfig>) {
        self.apply(hosts.into_iter().chain([template()]).collect());
    }

    fn apply(&self, hosts: Vec<HostConfig>) {
        let target = TargetConfig { hosts, ..TargetConfig::open(Arc::clone(&self.device)) };
        let update = Update {
            portals: vec![PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1)],
            datagram_portals: Vec::new(),
            leaves_closed: false,
            required_portals: Vec::new(),
            targets: vec![target],
            discovery: Authentication::None,
            port_groups: Vec::new(),
            units: Vec::new(),
            growth: Vec::new(),
        };
        self.target.control.apply(update).unwrap();
    }
}

fn request(initiator: char) -> HostRequest {
    let initiator = format!("iqn.2026-11.org.example:{initiator}");
    HostRequest { target: TARGET.into(), template: "web".into(), initiator }
}

/// The host of an initiator, which sees one unit as LUN 0.
fn host(initiator: char, unit: u16) -> HostConfig {
    let initiators = Some(vec![request(initiator).initiator]);
    let host = Host { name: initiator.to_string().as_str().into(), ..Host::of_initiators(initiators) };
    let place = Place { lun: Lun::ZERO, read_only: false };
    HostConfig { host, luns: LunMap::only(vec![(Lun::new(unit).unwrap(), place)], false).unwrap() }
}

#[test]
fn a_login_of_a_template_goes_on_when_it_has_a_host() {
    for cores in [1, 2] {
        let served = Served::new(cores);
        let (mut first, mut second) = (served.begin(Port::A), served.begin(SECOND));
        let mut other = served.begin(Port::B);
        let mut asked = [0; 3].map(|_| served.asked.recv().unwrap().initiator);
        asked.sort();
        assert_eq!(asked, [request('a'), request('a'), request('b')].map(|request| request.initiator));

        served.serve(vec![host('a', 1)]);
        first.finish_login();
        second.finish_login();
        assert_eq!(first.test_unit_ready(0).sense(), (6, 0x29, 0));
        assert_eq!(first.test_unit_ready(1).sense(), (5, 0x25, 0), "the unit of another initiator");
        served.serve(vec![host('a', 1), host('b', 0)]);
        other.finish_login();
        assert_eq!(other.test_unit_ready(0).sense(), (6, 0x29, 0));
        assert!(served.asked.try_recv().is_err(), "each login asks once");

        // Its next login finds the host.
        let mut third = Initiator::log_in(served.target.address, Port { isid: 3, ..Port::A }, &[]);
        assert_eq!(third.test_unit_ready(0).sense(), (6, 0x29, 0));
    }
}

#[test]
fn a_login_whose_host_cannot_be_made_is_refused_and_may_come_again() {
    for cores in [1, 2] {
        let served = Served::new(cores);
        let (mut refused, mut other) = (served.begin(Port::A), served.begin(Port::B));
        (0..2).for_each(|_| drop(served.asked.recv().unwrap()));
        served.target.control.refuse_host(request('a')).unwrap();
        assert_eq!(refused.login_status(), LoginStatus::SERVICE_UNAVAILABLE);
        let mut again = served.begin(Port::A);
        assert_eq!(served.asked.recv().unwrap(), request('a'));
        served.serve(vec![host('a', 0), host('b', 1)]);
        again.finish_login();
        other.finish_login();
    }
}

#[test]
fn a_login_whose_time_is_over_waits_no_more() {
    let served = Served::with(|config| config.timers.login = Duration::from_millis(20));
    let waiting = served.begin(Port::A);
    served.asked.recv().unwrap();
    waiting.wait_for_end();
    served.target.wait_until("the end of the connection", |statistics| statistics.connections == 0);
    served.serve(vec![host('a', 0)]);
    served.target.stop().unwrap();
}

#[test]
fn a_template_that_is_gone_refuses_the_logins_that_wait() {
    let served = Served::new(1);
    let mut waiting = served.begin(Port::A);
    served.asked.recv().unwrap();
    let other = HostConfig { host: Host::of_initiators(Some(Vec::new())), luns: LunMap::default() };
    served.apply(vec![other]);
    assert_eq!(waiting.login_status(), LoginStatus::AUTHORIZATION_FAILURE);
}

#[test]
fn without_a_maker_no_initiator_of_a_template_is_let_in() {
    let target = Target::of(vec![device(TARGET, vec![memory()])], |config| config.targets[0].hosts = vec![template()]);
    let mut initiator = Initiator::connect(target.address);
    initiator.send_login(Port::A, &[]);
    assert_eq!(initiator.login_status(), LoginStatus::AUTHORIZATION_FAILURE);
}
