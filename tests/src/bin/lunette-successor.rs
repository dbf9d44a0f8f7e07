//! A successor that does not take over: the file `successor` beside the program says how far it goes.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::{env, fs};

use lunette_handover::{Channel, Message};

fn main() {
    let beside = |name: &str| env::current_exe().expect("a running program has a path").with_file_name(name);
    let how = fs::read_to_string(beside("successor")).expect("the test has written it");
    let way = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().expect("the way to the predecessor"));
    let channel = Channel::from(way.try_clone().expect("a socket can be opened twice"));
    channel.send_ready().expect("the predecessor listens");
    if how == "ends when ready" {
        return;
    }
    let message = channel.receive().expect("the predecessor sends its state");
    assert!(matches!(message, Message::State { .. }), "{message:?}");
    match how.as_str() {
        "ends with the state" => {}
        "refuses the state" => channel.send_refused("there is no room").expect("the predecessor listens"),
        "says nothing known" => (&way).write_all(b"?????????").expect("the predecessor listens"),
        "is ready again" => channel.send_ready().expect("the predecessor listens"),
        "keeps the state" => {
            fs::write(beside("has-state"), "").expect("a file beside the program");
            // The end is the only news that can come.
            let _ = channel.receive();
        }
        how => panic!("{how:?} is unknown"),
    }
}
