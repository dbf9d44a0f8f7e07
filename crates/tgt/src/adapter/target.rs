//! Targets and the rules for their initiators.

use lunette_api::edits::{self, Precondition};
use lunette_api::{Cause, Document, Key, Kind, Trouble};
use serde_json::{Value, json};

use super::{Adapter, Ended};
use crate::document::{self, Rule};
use crate::params;
use crate::show;
use crate::wire::{Fault, Request};

/// How a value of tgtadm is written in a document.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// A length in bytes.
    Bytes,
    Number,
    /// `Yes` or `No`.
    Choice,
}

/// A parameter of a target: its name in tgtadm, the value that holds without one, and its key in the table `session`.
struct Parameter {
    name: &'static str,
    default: &'static str,
    key: Option<(&'static str, Form)>,
}

const fn kept(name: &'static str, default: &'static str, key: &'static str, form: Form) -> Parameter {
    Parameter { name, default, key: Some((key, form)) }
}

/// A parameter that cannot be changed here.
const fn fixed(name: &'static str, default: &'static str) -> Parameter {
    Parameter { name, default, key: None }
}

/// The key of a target, and not of its table `session`.
const MAX_CONNECTIONS: &str = "max_connections";

/// The parameters in the order in which tgtd prints them.
const PARAMETERS: [Parameter; 24] = [
    fixed("nop_interval", "0"),
    fixed("nop_count", "0"),
    kept("MaxRecvDataSegmentLength", "262144", "max_recv_data_segment_length", Form::Bytes),
    fixed("HeaderDigest", "None,CRC32C"),
    fixed("DataDigest", "None,CRC32C"),
    kept("InitialR2T", "No", "initial_r2t", Form::Choice),
    kept("MaxOutstandingR2T", "8", "max_outstanding_r2t", Form::Number),
    kept("ImmediateData", "Yes", "immediate_data", Form::Choice),
    kept("FirstBurstLength", "262144", "first_burst_length", Form::Bytes),
    kept("MaxBurstLength", "1048576", "max_burst_length", Form::Bytes),
    kept("DataPDUInOrder", "Yes", "data_pdu_in_order", Form::Choice),
    kept("DataSequenceInOrder", "Yes", "data_sequence_in_order", Form::Choice),
    kept("ErrorRecoveryLevel", "0", "error_recovery_level", Form::Number),
    fixed("IFMarker", "No"),
    fixed("OFMarker", "No"),
    kept("DefaultTime2Wait", "0", "default_time2wait", Form::Number),
    kept("DefaultTime2Retain", "0", "default_time2retain", Form::Number),
    fixed("OFMarkInt", "Reject"),
    fixed("IFMarkInt", "Reject"),
    kept("MaxConnections", "8", MAX_CONNECTIONS, Form::Number),
    fixed("RDMAExtensions", "No"),
    fixed("TargetRecvDataSegmentLength", "262144"),
    fixed("InitiatorRecvDataSegmentLength", "262144"),
    fixed("MaxOutstandingUnexpectedPDUs", "0"),
];

impl Form {
    fn read(self, text: &str) -> Result<Value, Fault> {
        let number = || text.parse::<u32>().map_err(|_| Fault::Invalid);
        match (self, text) {
            (Self::Bytes, _) => Ok(number()?.to_string().into()),
            (Self::Number, _) => Ok(number()?.into()),
            (Self::Choice, "Yes") => Ok(true.into()),
            (Self::Choice, "No") => Ok(false.into()),
            (Self::Choice, _) => Err(Fault::Invalid),
        }
    }

    fn print(value: &Value) -> String {
        match value {
            Value::Bool(true) => "Yes".into(),
            Value::Bool(false) => "No".into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

impl Adapter {
    pub(super) fn new_target(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let tid = request.tid.filter(|tid| *tid > 0).ok_or(Fault::Invalid)?;
        let ("targetname", name) = params::one(text)? else { return Err(Fault::Invalid) };
        let key = Key::new(Kind::Target, name).map_err(|_| Fault::Invalid)?;
        let targets = self.targets()?;
        if targets.contains_key(&tid) || targets.values().any(|(other, _)| other == name) {
            return Err(Fault::TargetExists);
        }
        // No initiator may use it until a rule is bound, as with tgtd.
        let Value::Object(document) = json!({ "allow": [] }) else { return Err(Fault::Unknown) };
        let is_new = Precondition { matches: None, is_new: true };
        self.book.add_target(name, tid)?;
        let made = self.change(name, false, move |catalog| edits::put(catalog, &key, document, &is_new));
        if made.is_err() {
            self.book.forget_target(name)?;
        }
        made
    }

    pub(super) fn delete_target(&mut self, request: &Request) -> Result<(), Fault> {
        let (name, _) = self.target(request)?;
        let sessions = self.sessions_of(&name)?;
        let all_ended = sessions.iter().all(|session| self.ended.contains(&Ended::new(&name, session)));
        if !request.force && !all_ended {
            return Err(Fault::TargetActive);
        }
        let key = Key::new(Kind::Target, &name).map_err(|_| Fault::Invalid)?;
        self.change(&name, true, move |catalog| edits::delete(catalog, &key, &super::there()))?;
        self.book.forget_target(&name)
    }

    pub(super) fn show_targets(&mut self, request: &Request) -> Result<String, Fault> {
        if request.tid.is_some() {
            let (_, document) = self.target(request)?;
            return Ok(PARAMETERS
                .iter()
                .map(|parameter| format!("{}={}\n", parameter.name, value(parameter, &document)))
                .collect::<Vec<_>>()
                .concat());
        }
        let (disks, troubles) = (self.server.disks(), self.server.troubles());
        let (mut text, mut sessions) = (String::new(), self.sessions()?);
        for (tid, (name, document)) in self.targets()? {
            let sessions = sessions.remove(&name).unwrap_or_default();
            let own = disks.iter().filter(|disk| disk.target == name).collect();
            let closed: Vec<u16> = troubles.iter().filter_map(|trouble| closed_unit(trouble, &name)).collect();
            let (name, document) = (&*name, &document);
            let shown = show::Target { tid, name, document, sessions: &sessions, disks: own, closed: &closed };
            text.push_str(&shown.text(|lun| self.book.unit(name, lun)));
        }
        Ok(text)
    }

    /// Lets initiators in.
    pub(super) fn bind(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let (name, _) = self.target(request)?;
        let rule = rule(text)?;
        self.change_target(&name, true, move |target| document::bind(target, &rule))
    }

    /// Lets initiators in no more. Those that are there are asked to log out.
    pub(super) fn unbind(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let (name, _) = self.target(request)?;
        let rule = rule(text)?;
        let sessions = self.sessions_of(&name)?;
        self.change_target(&name, true, move |target| document::unbind(target, &rule))?;
        self.unbound.extend(sessions.iter().map(|session| Ended::new(&name, session)));
        Ok(())
    }

    pub(super) fn update_target(&mut self, request: &Request, text: &str) -> Result<(), Fault> {
        let (name, _) = self.target(request)?;
        let (parameter, wanted) = params::one(text)?;
        if parameter == "state" {
            return match wanted {
                "ready" => Ok(()),
                "offline" => Err(Fault::Unsupported),
                _ => Err(Fault::Invalid),
            };
        }
        let parameter = PARAMETERS.iter().find(|known| known.name == parameter).ok_or(Fault::Invalid)?;
        let (key, form) = parameter.key.ok_or(Fault::Unsupported)?;
        let wanted = form.read(wanted)?;
        self.change_target(&name, false, move |target| {
            table_mut(target, key)?.insert(key.into(), wanted.clone());
            Ok(())
        })
    }

    /// The driver and its targets.
    pub(super) fn show_driver(&mut self) -> Result<String, Fault> {
        let targets = self.targets()?;
        let lines: String = targets
            .iter()
            .map(|(tid, (name, _))| format!("        Target {tid}: {name}\n"))
            .collect::<Vec<_>>()
            .concat();
        Ok(format!("LLDs:\n    iscsi: ready\n{lines}"))
    }
}

/// The unit of a target whose disk is not open, when that is the trouble.
fn closed_unit(trouble: &Trouble, target: &str) -> Option<u16> {
    let is_it = trouble.kind == "lun" && trouble.target.as_deref() == Some(target) && trouble.cause == Cause::NotOpened;
    trouble.name.parse().ok().filter(|_| is_it)
}

/// The rule that a request names.
fn rule(text: &str) -> Result<Rule, Fault> {
    match params::one(text)? {
        ("initiator-address", address) => Ok(Rule::of_address(address)),
        ("initiator-name", name) => Rule::of_name(name),
        _ => Err(Fault::Invalid),
    }
}

/// The table of a target that has a key.
fn table_mut<'a>(target: &'a mut Document, key: &str) -> Result<&'a mut Document, Fault> {
    if key == MAX_CONNECTIONS {
        return Ok(target);
    }
    target.entry("session").or_insert_with(|| json!({})).as_object_mut().ok_or(Fault::Invalid)
}

/// The value of a parameter that holds for a target.
fn value(parameter: &Parameter, target: &Document) -> String {
    let own = parameter.key.and_then(|(key, _)| match key {
        MAX_CONNECTIONS => target.get(key),
        _ => target.get("session")?.get(key),
    });
    own.map_or_else(|| parameter.default.to_owned(), Form::print)
}
