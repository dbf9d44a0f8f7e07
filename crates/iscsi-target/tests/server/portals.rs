//! Portals that open and close while sessions are open.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use lunette_session::Authentication;
use lunette_target::{
    BindError, DatagramPlace, DatagramPortalConfig, Listening, PortalConfig, TargetConfig, Update, UpdateError,
};

use crate::common::{Initiator, Port, TARGET, Target, device, memory};

/// A server, and how to give it other portals.
struct Served {
    target: Target,
    device: std::sync::Arc<lunette_device::TargetDevice>,
}

impl Served {
    fn new() -> Self {
        let device = device(TARGET, vec![memory()]);
        Self { target: Target::of(vec![device.clone()], |_| {}), device }
    }

    fn listen(&self, portals: &[PortalConfig]) -> Result<Vec<SocketAddr>, UpdateError> {
        self.update(portals, &[], false).map(|listening| listening.portals)
    }

    fn update(
        &self,
        portals: &[PortalConfig],
        datagram_portals: &[DatagramPortalConfig],
        leaves_closed: bool,
    ) -> Result<Listening, UpdateError> {
        let datagram_portals = datagram_portals.to_vec();
        self.target.control.apply(Update { datagram_portals, leaves_closed, ..self.of(portals) })
    }

    /// An update that leaves portals closed.
    fn of(&self, portals: &[PortalConfig]) -> Update {
        Update {
            portals: portals.to_vec(),
            datagram_portals: Vec::new(),
            leaves_closed: true,
            required_portals: Vec::new(),
            targets: vec![TargetConfig::open(self.device.clone())],
            discovery: Authentication::None,
            port_groups: Vec::new(),
            units: Vec::new(),
            growth: Vec::new(),
        }
    }
}

fn portal(address: &str) -> PortalConfig {
    PortalConfig::new(address.parse().unwrap(), 1)
}

/// The portal of [`Target::of`].
fn first() -> PortalConfig {
    portal("127.0.0.1:0")
}

fn attach(address: SocketAddr) -> Initiator {
    let mut initiator = Initiator::connect(address);
    initiator.send_login(Port::B, &[]);
    initiator.finish_login();
    initiator
}

#[test]
fn a_portal_that_comes_is_listened_on_beside_the_others() {
    let served = Served::new();
    let mut here = Initiator::attach(&served.target, Port::A);
    let addresses = served.listen(&[portal("127.0.0.2:0"), first()]).unwrap();
    assert_eq!(addresses[1], served.target.address, "it kept its port");
    assert_eq!(addresses[0].ip().to_string(), "127.0.0.2");
    attach(addresses[0]);
    here.is_undisturbed();
    attach(served.target.address);
}

#[test]
fn a_portal_that_goes_leaves_the_sessions_that_came_through_it() {
    let served = Served::new();
    let mut here = Initiator::attach(&served.target, Port::A);
    let addresses = served.listen(&[portal("127.0.0.2:0")]).unwrap();
    assert!(TcpStream::connect(served.target.address).is_err());
    here.is_undisturbed();
    assert!(here.test_unit_ready(0).good().is_empty());
    attach(addresses[0]);
}

#[test]
fn a_portal_may_take_over_the_port_of_one_that_goes() {
    let served = Served::new();
    let port = served.target.address.port();
    let mut here = Initiator::attach(&served.target, Port::A);
    let everywhere = portal(&format!("0.0.0.0:{port}"));
    served.listen(std::slice::from_ref(&everywhere)).unwrap();
    attach(SocketAddr::from(([127, 0, 0, 9], port)));
    here.is_undisturbed();
    let other_group = PortalConfig { group: 2, ..everywhere };
    assert_eq!(served.listen(&[other_group]).unwrap()[0].port(), port);
    attach(SocketAddr::from(([127, 0, 0, 9], port)));
}

#[test]
fn a_portal_that_cannot_be_opened_is_left_closed_until_it_can() {
    let served = Served::new();
    let mut here = Initiator::attach(&served.target, Port::A);
    let (busy, busy_udp) = (TcpListener::bind("127.0.0.3:0").unwrap(), UdpSocket::bind("127.0.0.3:0").unwrap());
    let (address, udp) = (busy.local_addr().unwrap(), busy_udp.local_addr().unwrap());
    let wanted = [PortalConfig::new(address, 1), portal("127.0.0.2:0"), first()];
    let datagrams = [
        DatagramPortalConfig { place: DatagramPlace::Udp(udp), group: 2 },
        DatagramPortalConfig { place: DatagramPlace::Ethernet("lunette-absent".into()), group: 2 },
    ];
    let update = || served.update(&wanted, &datagrams, true).unwrap();
    let required = [PortalConfig::new(address, 1)];
    let refused = served.target.control.apply(Update { required_portals: required.into(), ..served.of(&wanted) });
    assert!(matches!(refused, Err(UpdateError::Refused(BindError::Listen { .. }))), "{refused:?}");
    let Listening { portals, closed } = update();
    assert_eq!((portals.len(), portals[1]), (2, served.target.address));
    let closed: Vec<_> = closed.iter().map(ToString::to_string).collect();
    assert_eq!(closed.len(), 3, "{closed:?}");
    attach(portals[0]);
    drop((busy, busy_udp));
    let again = update();
    assert_eq!(again.portals[0], address);
    assert_eq!(again.portals[1..], portals, "those that were open stay");
    assert!(matches!(again.closed.as_slice(), [BindError::Interface { .. }]));
    attach(address);
    here.is_undisturbed();
}

#[test]
fn an_address_in_use_changes_nothing() {
    let served = Served::new();
    let mut here = Initiator::attach(&served.target, Port::A);
    let other = TcpListener::bind("127.0.0.3:0").unwrap();
    let busy = other.local_addr().unwrap();
    let port = served.target.address.port();
    // The first needs the place of the old portal, which has to come back when the second fails.
    let wanted = [portal(&format!("0.0.0.0:{port}")), portal("127.0.0.2:0"), PortalConfig::new(busy, 1)];
    let Err(UpdateError::Refused(BindError::Listen { address, .. })) = served.listen(&wanted) else {
        panic!("{busy} is in use")
    };
    assert_eq!(address, busy);
    here.is_undisturbed();
    attach(served.target.address);
    assert!(TcpStream::connect(("127.0.0.9", port)).is_err(), "the new portal is closed again");
    // The portal that came back is known by its name in the configuration.
    assert_eq!(served.listen(&[first()]).unwrap(), [served.target.address]);
    attach(served.target.address);
}
