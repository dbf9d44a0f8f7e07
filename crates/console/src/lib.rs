//! The console: the pages of the API for people, with live numbers, at `/` and below `/console`.
//!
//! Layer 2: over api; under lunette.
//!
//! The console shows what `lunette-api` knows and changes nothing itself. A button is a request of the API, as `lunette
//! ctl` would send it.
//!
//! - [`Console`] is what `lunette-api` serves beside its routes.
//! - `pages` are behind the API's check of tokens. `front` stands before both: it refuses requests that pages of other
//!   sites have made, and turns the cookie of a login into the API's token.
//! - `call` writes a request of the API as a button or a form, beside the line of `lunette ctl` that does the same.
//! - `numbers` reads the text of `/metrics` for the charts.
//! - `assets` has the files of the browser, among them htmx and uPlot with their licences.

#![forbid(unsafe_code)]

mod assets;
mod call;
mod front;
pub mod limits;
mod logins;
mod numbers;
mod pages;

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use lunette_api::{Access, Server, Site};

/// The console of a server.
pub struct Console(Arc<dyn Server>);

impl Console {
    /// A console that shows what this server serves.
    pub fn new(server: Arc<dyn Server>) -> Self {
        Self(server)
    }
}

impl Site for Console {
    fn pages(&self, access: Access) -> Router {
        pages::router(Arc::clone(&self.0), access)
    }

    fn front(&self, routes: Router, access: Access) -> Router {
        front::front(routes, access)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
