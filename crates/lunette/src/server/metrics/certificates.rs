//! The ends of certificates that are in use, and of lists of revoked ones.

use super::text::{Label, Text, Type};
use crate::server::certificates::{End, Kind};

/// Certificates and lists that have metrics. Each folder that the configuration names has one of each.
const MAX_ENDS: usize = 256;

/// The metrics of certificates; none for a server without TLS.
pub(super) fn certificates(text: &mut Text, ends: &[End]) {
    let help = "When a certificate in use ends, in seconds since 1970: the first one of its chain.";
    of_kind(text, "lunette_certificate_expiry_timestamp_seconds", help, ends, Kind::Certificate);
    let help = "When the next list of revoked certificates is due, in seconds since 1970.";
    of_kind(text, "lunette_revocation_list_next_update_timestamp_seconds", help, ends, Kind::List);
}

fn of_kind(text: &mut Text, name: &str, help: &str, ends: &[End], kind: Kind) {
    let mut ends = ends.iter().filter(|end| end.kind == kind).take(MAX_ENDS).peekable();
    if ends.peek().is_none() {
        return;
    }
    text.begin(name, Type::Gauge, help);
    for End { of, file, at_seconds, .. } in ends {
        let labels: [Label<'_>; 2] = [("use", &of.name()), ("file", &file.display())];
        text.sample(name, &labels, at_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::certificates::Use;

    #[test]
    fn ends_are_bounded_and_without_one_there_is_no_metric() {
        let mut none = Text::default();
        certificates(&mut none, &[]);
        assert_eq!(none.into_string(), "");
        let end = |at: usize| End { of: Use::Api, kind: Kind::List, file: format!("/{at}").into(), at_seconds: 1 };
        let mut many = Text::default();
        certificates(&mut many, &(0..=MAX_ENDS).map(end).collect::<Vec<_>>());
        let text = many.into_string();
        assert_eq!(text.matches("lunette_revocation_list_next_update_timestamp_seconds{").count(), MAX_ENDS);
        assert!(!text.contains("lunette_certificate_expiry"));
    }
}
