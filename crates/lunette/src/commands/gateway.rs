//! `lunette gateway`: looks at the gateways to a disk, and moves it from one to another.

use std::time::Duration;

use clap::{Args, Subcommand};
use lunette_rbd::{Access, RbdUrl, gateways_of, move_image};

use crate::failure::Failure;
use crate::output;

/// The time that an image has to get from one gateway to another.
const MOVE_LIMIT: Duration = Duration::from_secs(30);

/// Look at the gateways of a disk in Ceph, or let another one have it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print the gateways that are running, and which one has the disk
    List {
        /// rbd:POOL/IMAGE, as the gateways name it
        image: RbdUrl,
    },
    /// Let the gateway of a group have the disk; prints how long it took
    Move {
        /// rbd:POOL/IMAGE, as the gateways name it
        image: RbdUrl,
        /// The target port group of the gateway
        #[arg(long, value_name = "GROUP")]
        to: u16,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.what {
        What::List { image } => list(image),
        What::Move { image, to } => {
            let took = move_image(image, *to, MOVE_LIMIT).map_err(|error| failure(image, &error))?;
            output::line(format!("group {to} has the disk after {:.3} s", took.as_secs_f64()))
        }
    }
}

fn list(image: &RbdUrl) -> Result<(), Failure> {
    let value = gateways_of(image).map_err(|error| failure(image, &error))?;
    let members =
        value.iter().flat_map(|value| value.members().map(|member| (member.group, value.access(member.group))));
    for (group, access) in members {
        output::line(format!("group {group}: {}", word(access)))?;
    }
    Ok(())
}

fn word(access: Access) -> &'static str {
    match access {
        Access::Active => "active",
        Access::Standby => "standby",
        Access::Transitioning => "transitioning",
    }
}

fn failure(image: &RbdUrl, error: &lunette_rbd::OpenError) -> Failure {
    Failure::disk(format!("{image}: {error}"))
}
