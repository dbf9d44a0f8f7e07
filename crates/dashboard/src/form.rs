//! The fields of a request, from its body.

use std::collections::BTreeMap;

use crate::limits::MAX_FIELDS;
use crate::refusal::Refusal;

/// The fields by their names.
#[derive(Debug, Default)]
pub(crate) struct Form(BTreeMap<String, String>);

impl Form {
    /// Reads `application/x-www-form-urlencoded`. Of two fields of one name, the first one counts.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut fields = BTreeMap::new();
        for (index, (name, value)) in form_urlencoded::parse(bytes).enumerate() {
            if index >= MAX_FIELDS {
                return Err(Refusal::bad(format!("a form has {MAX_FIELDS} fields at most")));
            }
            fields.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Ok(Self(fields))
    }

    /// A field, if it was sent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A field; empty when it was not sent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A field that has to be there.
    pub(crate) fn need(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name).filter(|value| !value.is_empty()).ok_or_else(|| Refusal::bad(format!("{name} is missing")))
    }

    /// The parts of a field with commas between them.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.text(name).split(',').filter(|part| !part.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_the_first_of_a_name_counts() {
        let form = Form::parse(b"members=iqn.a%3A1%2Ciqn.b&mode=a+b&mode=c&empty=").unwrap();
        assert_eq!(form.list("members"), ["iqn.a:1", "iqn.b"]);
        assert_eq!((form.text("mode"), form.get("empty"), form.get("none")), ("a b", Some(""), None));
        assert!(form.list("empty").is_empty() && form.need("empty").is_err());
    }

    #[test]
    fn a_form_of_too_many_fields_is_refused() {
        assert!(Form::parse("a&".repeat(MAX_FIELDS).as_bytes()).is_ok());
        assert_eq!(Form::parse("a&".repeat(MAX_FIELDS + 1).as_bytes()).unwrap_err().status, 400);
    }
}
