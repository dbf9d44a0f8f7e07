//! Requests to the API of a listening `lunette serve`, by curl.

use std::path::Path;

use serde_json::Value;

use crate::tool::{Ran, run};

/// A place of the API, and what curl needs to get there.
pub struct Api {
    site: String,
    arguments: Vec<String>,
}

/// An answer of a server.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The lines of the header, names in lower case as curl shows them for HTTP/1.1.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reason and the remedy. Panics when the answer is no problem of this status.
    pub fn problem(&self, status: u16) -> String {
        assert_eq!((self.status, self.header("content-type")), (status, Some("application/problem+json")), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{self:?}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(!detail.is_empty(), "{self:?}");
        detail.to_owned()
    }
}

impl Api {
    /// The API at a Unix socket.
    pub fn unix(socket: &Path) -> Self {
        Self { site: "http://localhost".into(), arguments: vec!["--unix-socket".into(), socket.display().to_string()] }
    }

    /// The API at an address, behind TLS, for one who has this token.
    pub fn tls(address: &str, token: &str) -> Self {
        let header = format!("Authorization: Bearer {token}");
        Self { site: format!("https://{address}"), arguments: vec!["-k".into(), "-H".into(), header] }
    }

    /// Runs curl with more arguments, for a path.
    pub fn curl(&self, path: &str, arguments: &[&str]) -> Ran {
        let url = format!("{}{path}", self.site);
        let own = self.arguments.iter().map(String::as_str);
        run("curl", ["-s", "-i", "-g", "-H", "Expect:", &url].into_iter().chain(own).chain(arguments.iter().copied()))
    }

    /// Sends a request, with headers such as `If-Match: *`.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: Option<&str>) -> Answer {
        let mut arguments = vec!["-X", method];
        arguments.extend(headers.iter().flat_map(|header| ["-H", header]));
        if let Some(body) = body {
            arguments.extend(["-H", "Content-Type: application/json", "--data-binary", body]);
        }
        let ran = self.curl(path, &arguments);
        let (head, body) = ran.succeeded().split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {ran}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        Answer { status, head: head.into(), body: body.into() }
    }

    /// Reads a path.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None)
    }

    /// Sends an object.
    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask("PUT", path, &[], Some(&body.to_string()))
    }
}
