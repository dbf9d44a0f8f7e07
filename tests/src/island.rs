//! A server in a network namespace of its own, whose ways to a Ceph cluster a test can cut.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;

use lunette_testkit::Relay;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::ceph::Ceph;
use crate::configured::Configured;
use crate::process::Owned;
use crate::server::{Server, passing_socket};

/// A network namespace with nothing but its loopback interface, and relays there at the addresses of a cluster. Needs
/// root.
pub struct Island {
    /// The process that keeps the namespace.
    holder: Owned,
    ways: Vec<Relay>,
}

impl Island {
    /// An island from which `cluster` is reached.
    pub fn with_ways_to(cluster: &Ceph) -> Self {
        let mut holder = Command::new("unshare");
        // It ends with this process, which has the other end of its input.
        holder.args(["--net", "sh", "-c", "ip link set lo up && echo up && exec cat"]);
        let holder = Owned::start(holder.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut island = Self { holder, ways: Vec::new() };
        let mut line = String::new();
        let output = island.holder.stdout.take().expect("the pipe was asked for");
        BufReader::new(output).read_line(&mut line).expect("a pipe can be read");
        assert_eq!(line, "up\n", "only root can have a network namespace");
        island.ways =
            cluster.addresses().into_iter().map(|address| Relay::of(island.listen(address), address)).collect();
        island
    }

    /// The namespace as a file.
    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }

    fn listen(&self, address: SocketAddr) -> TcpListener {
        let namespace = File::open(self.namespace()).expect("the holder runs");
        // A socket stays in the namespace in which it was made, and so does a thread.
        let listening = thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
            TcpListener::bind(address).expect("all ports are free there")
        });
        listening.join().expect("it does not panic")
    }

    /// Serves a logical unit of the configuration in `place` there. Its portal is `socket`, which is outside.
    pub fn serve(&self, place: &Configured, socket: TcpListener) -> Server {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace()));
        Server::spawn(passing_socket(command, place, socket), 1)
    }

    /// From now on nothing passes between the server and the cluster.
    pub fn cut_off(&self) {
        self.ways.iter().for_each(Relay::fall_silent);
    }

    /// Ends [`cut_off`](Self::cut_off). What was under way arrives late.
    pub fn join_again(&self) {
        self.ways.iter().for_each(Relay::go_on);
    }
}
