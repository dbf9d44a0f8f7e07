//! `lunette serve`: disks over iSCSI.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args};
use lunette_api::{Cause, Events, Health, Listener};
use lunette_device::TargetDevice;
use lunette_target::{BindError, DatagramPortal, PortalConfig, Server, ServerConfig, Stopper};
use signal_hook::consts::{SIGHUP, SIGUSR1};

use crate::address::reachable;
use crate::config::adapters::Adapters;
use crate::config::limits::Limits;
use crate::config::mistakes;
use crate::config::nbd::Nbd;
use crate::config::port_groups::Access;
use crate::config::session::SessionKeys;
use crate::config::sources::Files;
use crate::config::{self, Chap, Config, Discovery, Listen, LunEntry, Portal, Provisioning, Target};
use crate::config::{api, ecl};
use crate::disks::encrypted::volumes;
use crate::disks::file::Reopening;
use crate::disks::{self, DiskName};
use crate::event_loop::EventLoop;
use crate::failure::Failure;
use crate::output;
use crate::secret::ChapArgument;
use crate::server::adapters;
use crate::server::certificates;
use crate::server::clones::{self, HostRequests};
use crate::server::control_plane::{self, ControlPlane, Door, Places};
use crate::server::counts::{Counts, Format};
use crate::server::handover::{self, Leaving, Left, Predecessor, What};
use crate::server::metrics;
use crate::server::nbd;
use crate::server::portals::bind_failure;
use crate::server::recovery;
use crate::server::reload::{self, Reloader};
use crate::server::served::Served;
use crate::server::start_log;
use crate::size::Size;
use crate::system;
use crate::systemd::{self, Sockets};

const AFTER_HELP: &str = "\
Attach from QEMU:
  qemu-system-x86_64 -drive file=iscsi://127.0.0.1:3260/iqn.2026-11.lunette:disk/0,format=raw,if=virtio
  qemu-img info iscsi://127.0.0.1:3260/iqn.2026-11.lunette:disk/0

Attach from Linux (open-iscsi):
  iscsiadm -m discovery -t sendtargets -p 127.0.0.1:3260
  iscsiadm -m node -T iqn.2026-11.lunette:disk -p 127.0.0.1:3260 --login

Signals: SIGTERM and Ctrl-C ask initiators to log out, end what runs, flush and exit; a second one exits at once. SIGHUP
reads the configuration file again and applies what has changed; a file that cannot be applied changes nothing. It also fetches the keys of
encrypted disks again, which happens once a minute, too, and when a quantum was read whose key is not known. SIGUSR1 prints
what the server has done and has in hand on standard error.
RUST_LOG chooses what is logged on standard error (default: info). Of lines that peers cause, 20 a second are written after a
burst of 1000; the next line tells how many were left out.

With --config, what cannot be served takes nothing else away: the log, lunette ctl and /readyz name it, and the server tries it again. --strict, or
strict = true in the file, refuses to start instead. Disks, addresses and secrets of the command line are always strict.

Exit codes: 0 stopped in order, 1 other failure, 2 bad usage, 3 bad configuration or secret, 4 address in use or not
available, 5 disk missing, unreadable or in use.";

/// Serve disks over iSCSI.
///
/// The n-th DISK becomes LUN n, from 0. Once it listens it prints one line per LUN: iscsi://HOST:PORT/IQN/LUN, and with
/// --ecl another one: ecl://HOST:PORT/IQN/LUN or ecl+eth://INTERFACE/MAC/IQN/LUN, with the server's interface in the
/// place of the client's. With --nbd there is also nbd://HOST:PORT/IQN/LUN
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A file, a block device, iscsi://HOST/TARGET/LUN, rbd:POOL/IMAGE, nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH,
    /// or mem:SIZE (64M, 10G, ...); ?keys=file:KEYS behind it decrypts it
    #[arg(value_name = "DISK", required_unless_present = "config")]
    disks: Vec<DiskName>,
    /// Where to listen; port 0 picks one (repeatable; default: 127.0.0.1:3260)
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<Listen>,
    /// Speak TLS and nothing else, by the certificates in this folder: server-cert.pem, server-key.pem, and ca-cert.pem
    /// when clients may have certificates, too
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
    /// Where to serve the disks by NBD, too, within TLS if there is --tls (repeatable)
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::address::one)]
    nbd: Vec<SocketAddr>,
    /// Where to speak the Effective Cross Layer, too: at a UDP port, or below IP at an interface (repeatable)
    #[arg(long, value_name = "ADDR:PORT|eth:INTERFACE")]
    ecl: Vec<ecl::Place>,
    /// Whether datagrams of --ecl pass the system joined (UDP_SEGMENT, UDP_GRO); off is for comparisons
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    ecl_offloads: bool,
    /// Traffic that --ecl encrypts after the login; headers are always authenticated [default: all to other machines]
    #[arg(long, value_name = "WHAT", value_enum)]
    ecl_protect: Option<ecl::Protect>,
    /// How much of what --ecl sends may be in flight
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    ecl_congestion_control: ecl::CongestionControl,
    /// The iSCSI name of the target
    #[arg(long, value_name = "IQN", default_value = "iqn.2026-11.lunette:disk")]
    target: String,
    /// Create DISKs that are missing, sparse
    #[arg(long, value_name = "SIZE")]
    create: Option<Size>,
    /// Bytes of a logical block: 512 (default) or 4096
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    block_size: Option<u32>,
    /// Serve quanta of 512, 1024, 2048 or 4096 bytes, which clients encrypt: each block is a quantum and its 64-byte
    /// slot
    #[arg(long, value_name = "BYTES", value_parser = quantum, conflicts_with = "block_size")]
    quantum: Option<u32>,
    /// Refuse to write quanta that came damaged
    #[arg(long, requires = "quantum", conflicts_with = "block_size")]
    check_quanta: bool,
    /// Read the disks again and again, at most this many bytes per second, and log the quanta that are damaged
    #[arg(long, value_name = "SIZE", requires = "quantum", conflicts_with = "block_size")]
    scrub_rate: Option<Size>,
    /// Send the data digests of reads that the quanta carry, without reading the data for them
    #[arg(long, requires = "quantum", conflicts_with = "block_size")]
    stored_digests: bool,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Send long reads out of the file without copying them, in sessions without data digests
    #[arg(long)]
    zero_copy: bool,
    /// Keep in FILE what must survive a restart: reservations, saved mode pages, ...; created when missing
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Let in initiators that prove to be USER with the secret in FILE (repeatable)
    #[arg(long, value_name = "USER:FILE")]
    chap: Vec<ChapArgument>,
    /// Prove to be USER to initiators that ask (mutual CHAP)
    #[arg(long, value_name = "USER:FILE", requires = "chap")]
    mutual_chap: Option<ChapArgument>,
    /// Let in this initiator and no other (repeatable)
    #[arg(long, value_name = "INITIATOR_IQN")]
    allow: Vec<String>,
    #[command(flatten)]
    event_loop: EventLoop,
    /// Event loops, each on a thread and, where there are enough, a CPU of its own; sessions are spread over them
    #[arg(long, value_name = "N", default_value_t = config::default_cores(), value_parser = cores)]
    cores: usize,
    /// Connections that a session may have
    #[arg(long, value_name = "N", default_value_t = config::default_max_connections(), value_parser = max_connections)]
    max_connections: u32,
    /// Serve the API at a Unix socket, too (repeatable)
    #[arg(long, value_name = "unix:PATH", requires = "config", conflicts_with = "disks")]
    api: Vec<api::Place>,
    /// Refuse to start while a disk, an address or a secret of the configuration file cannot be used, instead of
    /// serving the rest
    #[arg(long, requires = "config", conflicts_with = "disks")]
    strict: bool,
    /// Print what SIGUSR1 asks for as one JSON object in a line
    #[arg(long)]
    json: bool,
    /// Print what SIGUSR1 asks for in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Read everything from a configuration file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "disks", "listen", "tls", "nbd", "ecl", "ecl_offloads", "ecl_protect", "ecl_congestion_control", "target", "create", "block_size", "quantum", "check_quanta", "scrub_rate", "stored_digests", "read_only", "zero_copy", "state", "chap", "mutual_chap", "allow",
        "max_connections", "cores",
    ])]
    config: Option<PathBuf>,
}

fn block_size(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|size| matches!(size, 512 | 4096)).ok_or_else(|| "write 512 or 4096".into())
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

fn quantum(text: &str) -> Result<u32, String> {
    let bytes = text.parse().map_err(|_| "write a number".to_owned())?;
    config::quantum(bytes).map(|_| bytes)
}

fn max_connections(text: &str) -> Result<u32, String> {
    let connections = text.parse().map_err(|_| "write a number".to_owned())?;
    config::check_max_connections(connections).map(|()| connections)
}

fn cores(text: &str) -> Result<usize, String> {
    let cores = text.parse().map_err(|_| "write a number".to_owned())?;
    config::check_cores(cores).map(|()| cores)
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    system::outlive_signals().map_err(Failure::other)?;
    let predecessor = Predecessor::of_environment()?.map(Arc::new);
    let ended = serve(arguments, predecessor.as_ref());
    if let (Err(failure), Some(predecessor)) = (&ended, &predecessor) {
        predecessor.refuse(failure);
    }
    ended
}

/// Serves until the server stops, or another process goes on with what it serves.
fn serve(arguments: &Arguments, predecessor: Option<&Arc<Predecessor>>) -> Result<(), Failure> {
    let hangups = system::hold(SIGHUP).map_err(Failure::other)?;
    let questions = system::hold(SIGUSR1).map_err(Failure::other)?;
    let files = arguments.config.clone().map(|path| Files::new(path, arguments.api.clone(), arguments.strict));
    let (config, read) = match &files {
        Some(files) => files.read(None).map(|read| (read.config.clone(), Some(read)))?,
        None => (arguments.to_config()?, None),
    };
    system::raise_descriptor_limit();
    let left_out = read.as_ref().map_or(&[][..], |read| &read.left_out);
    let mut left = predecessor.map(|predecessor| predecessor.receive(left_out)).transpose()?;
    let mut sockets = left.as_mut().map_or_else(Sockets::passed, Left::sockets)?;
    let portals = certificates::portals(&config);
    let addresses: Vec<_> = portals.iter().map(|portal| portal.address).collect();
    let listeners = sockets.take_portals(&addresses);
    let wanted = portals.clone();
    let has_api = config.api.is_some();
    let Places { open: api, closed: closed_doors } = control_plane::open(&config, &mut sockets)?;
    sockets.close_unused();
    let doors = api.iter().map(Listener::duplicate).collect::<io::Result<_>>().map_err(Failure::other)?;
    let served = left.as_mut().map_or_else(|| Served::open(&config), |left| left.open(&config))?;
    let targets = served.target_configs(&config);
    let devices: Vec<_> = targets.iter().map(|target| Arc::clone(&target.device)).collect();
    let events = Events::default();
    let health = Health::new(events.clone());
    let host_requests = Arc::new(HostRequests::default());
    let server = Server::bind(ServerConfig {
        host_maker: files.is_some().then(|| host_requests.maker()),
        observer: has_api.then(|| control_plane::observer(events.clone())),
        discovery: served.discovery.clone(),
        event_loop: arguments.event_loop.config(),
        cores: config.cores,
        buffer_bytes: config.limits.buffer_bytes(),
        timers: config.limits.timers(),
        slow_command: config.limits.slow_command(),
        datagram_portals: config.datagram_portals(),
        leaves_closed: !config.strict,
        datagrams: ecl::carriage(&config, served.state.as_ref())?,
        listeners,
        keeps_listeners: left.is_none(),
        inherited: left.as_mut().map(Left::sessions).transpose()?.unwrap_or_default(),
        ..ServerConfig::new(portals, targets)
    })
    .map_err(bind_failure)?;
    if let (Some(predecessor), Some(left)) = (predecessor, &mut left) {
        predecessor.take(left)?;
        tracing::info!("this process goes on with the sessions of its predecessor, version {}", left.version());
    }
    let speaks_tls = speaks_tls(&server, wanted);
    served.keep();
    report_start(&health, &server, &served, &config, &closed_doors);
    let (control, monitor, pulse, stopper) = (server.control(), server.monitor(), server.pulse(), server.stopper());
    let first_portals = first_portals(&server, speaks_tls);
    let reopening = if files.is_some() { Reopening::OnHangup } else { Reopening::AtStart };
    let event_loop = arguments.event_loop.holds_up_handover();
    let has_config = arguments.config.is_some();
    let format = arguments.counts_format();
    let is_successor = predecessor.is_some();
    let accompany = move || -> Result<(), Failure> {
        let nbd = nbd::start(&config, &control, &health)?;
        let nbd_uris = nbd.uris();
        stop_on_signals(nbd, stopper)?;
        disks::follow(&control, health.clone(), reopening)?;
        certificates::follow(health.clone())?;
        let audit = control_plane::audit(&config);
        let fixed = files.is_none().then(|| Box::new((config.clone(), served.clone())));
        let control_plane = files.zip(read).map(|(files, read)| {
            let reloader = Reloader::new(files, read, served, control.clone(), (events, health.clone()));
            ControlPlane::new(reloader, control.clone(), monitor.clone(), audit)
        });
        if let Some(control_plane) = &control_plane {
            if !api.is_empty() {
                control_plane::start(api, control_plane.clone())?;
            }
            adapters::start(&config, control_plane, &health)?;
            clones::follow(control_plane.clone(), host_requests)?;
            recovery::follow(control_plane.clone(), closed_doors.into_iter().map(|(door, _)| door).collect())?;
        }
        let what = control_plane.clone().map(|changing| What::Changing(Box::new(changing))).or(fixed.map(What::Fixed));
        if let Some(what) = what {
            handover::open(Leaving::new(control, what, doors, event_loop));
        }
        reload_on_hangups(hangups, health.clone(), control_plane)?;
        if has_config {
            metrics::note_reload(true);
        }
        let mut counts = Counts::new(monitor.clone(), health.clone(), format);
        questions.answer_with("lunette-counts", move || counts.print()).map_err(Failure::no_thread)?;
        if !is_successor {
            let portals = [first_portals, nbd_uris].concat();
            output::announce("the URLs of the disks", urls(&portals, &devices))?;
        }
        systemd::accompany(monitor, pulse, health).map_err(Failure::no_thread)
    };
    match predecessor.cloned() {
        None => accompany()?,
        Some(predecessor) => predecessor.at_its_end(accompany)?,
    }
    server.run().map_err(Failure::other)?;
    volumes::close()
}

/// Whether the first of these portals that is open speaks TLS. Certificates are in use as long as one of `wanted` is.
fn speaks_tls(server: &Server, wanted: Vec<PortalConfig>) -> bool {
    let is_closed = |portal: &PortalConfig| {
        let is_it =
            |error: &BindError| matches!(error, BindError::Listen { address, .. } if *address == portal.address);
        server.closed_portals().iter().any(is_it)
    };
    let first = wanted.into_iter().find(|portal| !is_closed(portal));
    first.is_some_and(|portal| portal.tls.is_some())
}

/// Says what is served, and what could not be opened.
fn report_start(health: &Health, server: &Server, served: &Served, config: &Config, closed_doors: &[(Door, String)]) {
    reload::report_portals(health, server.closed_portals(), config);
    for (door, why) in closed_doors {
        health.report(door.subject(), Cause::NotOpened, why);
    }
    for line in start_log::lines(server.portals(), served) {
        tracing::info!("{line}");
    }
}

/// Has SIGHUP read the configuration file again, with certificates and the keys of disks.
fn reload_on_hangups(
    hangups: system::Held,
    health: Health,
    control_plane: Option<ControlPlane>,
) -> Result<(), Failure> {
    let reload = move || {
        certificates::read_again(&health);
        let has_volumes = volumes::refresh();
        if let Some(control_plane) = &control_plane {
            control_plane.reload();
        } else if !has_volumes {
            tracing::warn!("SIGHUP: there is no configuration file to read again; start with --config");
        }
    };
    hangups.answer_with("lunette-reload", reload).map_err(Failure::no_thread)
}

/// Has signals end the clients of NBD, and then the server.
fn stop_on_signals(nbd: nbd::Running, stopper: Stopper) -> Result<(), Failure> {
    let stop = nbd.before(move || stopper.stop());
    let stop = move || {
        systemd::notify("STOPPING=1");
        stop();
    };
    system::stop_on_signals(stop).map_err(Failure::no_thread)
}

impl Arguments {
    fn counts_format(&self) -> Format {
        match (self.json, self.prometheus) {
            (true, _) => Format::Json,
            (false, true) => Format::Prometheus,
            (false, false) => Format::Table,
        }
    }

    /// Refuses options that would have no effect on any of the disks.
    fn check_effects(&self) -> Result<(), Failure> {
        let has = |is_one: fn(&DiskName) -> bool| self.disks.iter().any(is_one);
        if self.create.is_some() && !has(|disk| disk.place.named_len().is_none()) {
            return Err(Failure::Usage("--create: a disk in memory has the length of its name; leave it out".into()));
        }
        if self.zero_copy && !has(|disk| disk.place.path().is_some() && disk.keys.is_none()) {
            return Err(Failure::Usage("--zero-copy: none of the disks is a file; leave it out".into()));
        }
        Ok(())
    }

    /// The portals, when they speak TLS.
    fn tls_portals(&self) -> Vec<Portal> {
        let Some(tls) = &self.tls else { return Vec::new() };
        let listen = if self.listen.is_empty() { vec![Listen::standard()] } else { self.listen.clone() };
        let portal = |address| Portal { address, group: config::DEFAULT_PORTAL_GROUP, tls: Some(tls.clone()) };
        listen.into_iter().map(portal).collect()
    }

    fn to_config(&self) -> Result<Config, Failure> {
        config::check_name(&self.target).map_err(Failure::Usage)?;
        self.allow.iter().try_for_each(|name| config::check_initiator_name(name)).map_err(Failure::Usage)?;
        self.check_effects()?;
        let chap = |argument: &ChapArgument| Chap { user: argument.user.clone(), secret_file: argument.file.clone() };
        let lun = |(index, disk): (usize, &DiskName)| LunEntry {
            number: u16::try_from(index).unwrap_or(u16::MAX),
            disk: disk.clone(),
            create: self.create,
            block_size: self.block_size,
            quantum: self.quantum,
            check_quanta: self.check_quanta,
            scrub_rate: self.scrub_rate,
            stored_digests: self.stored_digests,
            read_only: self.read_only,
            removable: false,
            thin_threshold: None,
            sanitize_rate: None,
            long_cdbs: false,
            zero_copy: self.zero_copy,
            provisioning: Provisioning::Thin,
            serial: None,
            vendor: None,
            product: None,
            revision: None,
            is_given: false,
        };
        let luns: Vec<_> = self.disks.iter().enumerate().map(lun).collect();
        for lun in &luns {
            if let Some((_, why)) = lun.mistakes(&self.target).first() {
                return Err(Failure::Usage(format!("{}: {why}", lun.disk.place)));
            }
        }
        let target = Target {
            name: self.target.clone(),
            alias: None,
            allow: (!self.allow.is_empty()).then(|| self.allow.clone()),
            chap: self.chap.iter().map(chap).collect(),
            mutual_chap: self.mutual_chap.as_ref().map(chap),
            chap_algorithms: None,
            max_connections: self.max_connections,
            marker_interval: None,
            session: SessionKeys::default(),
            luns,
            redirect: None,
            access: Access::default(),
            gateways: None,
            hosts: Vec::new(),
            port_groups: Vec::new(),
            absent: BTreeSet::new(),
        };
        let config = Config {
            // What stands on the command line is seen at once by its author.
            strict: true,
            listen: (!self.listen.is_empty() && self.tls.is_none()).then(|| self.listen.clone()),
            portals: self.tls_portals(),
            ecl: self.ecl.clone(),
            ecl_offloads: self.ecl_offloads,
            ecl_protect: self.ecl_protect,
            ecl_congestion_control: self.ecl_congestion_control,
            state: self.state.clone(),
            cores: self.cores,
            limits: Limits::default(),
            discovery: Discovery::default(),
            api: None,
            adapters: Adapters::default(),
            metrics: None,
            nbd: (!self.nbd.is_empty()).then(|| Nbd::at(self.nbd.clone(), self.tls.clone())),
            pools: Vec::new(),
            targets: vec![target],
        };
        if let Some((_, why)) = config.unknown_portals().next() {
            return Err(Failure::Address(why.into()));
        }
        if let Some(double) = mistakes::encrypted_doubles(&config).first() {
            return Err(Failure::Configuration(double.mistake().text));
        }
        Ok(config)
    }
}

/// The first portal of each kind, as URLs begin with it. `speaks_tls`: whether the first one of all does.
fn first_portals(server: &Server, speaks_tls: bool) -> Vec<String> {
    let scheme = if speaks_tls { "iscsis" } else { "iscsi" };
    let of_tcp = server.portals().first().map(|address| format!("{scheme}://{}", reachable(*address)));
    let first = |of: fn(&DatagramPortal) -> Option<String>| server.datagram_portals().iter().find_map(of);
    let of_udp = first(|portal| match portal {
        DatagramPortal::Udp(address) => Some(format!("ecl://{}", reachable(*address))),
        DatagramPortal::Ethernet { .. } => None,
    });
    let of_ethernet = first(|portal| match portal {
        DatagramPortal::Ethernet { interface, mac } => Some(format!("ecl+eth://{interface}/{mac}")),
        DatagramPortal::Udp(_) => None,
    });
    [of_tcp, of_udp, of_ethernet].into_iter().flatten().collect()
}

/// One line per LUN for each of these portals. Scripts wait for these lines.
fn urls(portals: &[String], devices: &[Arc<TargetDevice>]) -> Vec<String> {
    let mut urls = Vec::new();
    for portal in portals {
        for device in devices {
            for (lun, _) in device.units() {
                urls.push(format!("{portal}/{}/{}", device.name(), lun.number().unwrap_or_default()));
            }
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_file_decides_is_no_option_beside_it() {
        let command = Arguments::augment_args(clap::Command::new("serve"));
        let config = command.get_arguments().find(|option| option.get_id() == "config").expect("the option");
        let refused = command.get_arg_conflicts_with(config);
        let beside = ["config", "api", "strict", "json", "prometheus", "io", "busy_poll"];
        for option in command.get_arguments() {
            let is_refused = refused.iter().any(|other| other.get_id() == option.get_id());
            assert_eq!(is_refused, !beside.contains(&option.get_id().as_str()), "{}", option.get_id());
        }
    }
}
