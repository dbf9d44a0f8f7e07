//! The secrets that a configuration names: those that cannot be used, and those that are used twice. Beside them, the
//! algorithms of CHAP that deserve a note.

use std::collections::BTreeSet;

use lunette_api::Subject;
use lunette_session::{Authentication, ChapAlgorithm, ChapAlgorithms, Credentials, Secret, check_secrets};

use super::Severity;
use super::machine::Machine;
use crate::config::left_out::object_at;
use crate::config::mistakes::{Mistake, Step};
use crate::config::{Chap, Config, Target};
use crate::secret::SecretFiles;

/// A rule of CHAP, with the secrets that can be used.
struct Rule {
    /// The name for people.
    name: String,
    at: Vec<Step>,
    asks: Authentication,
}

/// A mistake with a secret.
struct Fault {
    severity: Severity,
    mistake: Mistake,
    /// The place of the other rule that it concerns, if any.
    other: Option<Vec<Step>>,
}

/// The faults of the secrets of a configuration.
pub(super) struct Secrets(Vec<Fault>);

impl Secrets {
    /// Reads all secrets of a configuration.
    pub(super) fn read(config: &Config, machine: &dyn Machine) -> Self {
        let files = machine.secrets(&config.secret_files().collect::<Vec<_>>());
        let mut reading = Reading { files: &files, found: Vec::new() };
        let discovery = (config.discovery.chap.as_slice(), config.discovery.mutual_chap.as_ref());
        let mut rules = vec![reading.rule("discovery".into(), &[Step::Key("discovery")], discovery)];
        let has_users = !config.discovery.chap.is_empty();
        reading.note_algorithms(config.discovery.chap_algorithms, has_users, &[Step::Key("discovery")]);
        for (index, target) in config.targets.iter().enumerate() {
            rules.extend(reading.rules_of(target, &[Step::Key("target"), Step::Index(index)]));
        }
        let mut found = reading.found;
        // Of objects with one name, which are a mistake of their own, the first one is served.
        let mut names = BTreeSet::new();
        rules.retain(|rule| names.insert(rule.name.clone()));
        // Each time the first one is found, so a rule that is told of loses its own secret.
        while let Err(shared) = check_secrets(&named(&rules)) {
            let asker = rules.iter().find(|rule| rule.name == shared.asker).map(|rule| rule.at.clone());
            let Some(prover) = rules.iter_mut().find(|rule| rule.name == shared.prover) else { break };
            if let Authentication::Chap { target, .. } = &mut prover.asks {
                *target = None;
            }
            let key = if is_login(&prover.at) { "disk" } else { "mutual_chap" };
            // The server shuts a rule, and no login of its own.
            let both = is_login(&prover.at) && asker.as_ref().is_some_and(|at| is_login(at));
            let severity = if both { Severity::Note } else { Severity::Degraded };
            let mistake = Mistake { at: [&*prover.at, &[Step::Key(key)]].concat(), text: shared.to_string() };
            found.push(Fault { severity, mistake, other: asker });
        }
        Self(found)
    }

    /// All faults as mistakes.
    pub(super) fn lacks(self) -> impl Iterator<Item = (Severity, Mistake)> {
        self.0.into_iter().map(|Fault { severity, mistake, other: _ }| (severity, mistake))
    }

    /// The first reason for which the rules of such objects cannot be used.
    pub(super) fn obstacle(&self, config: &Config, is_meant: impl Fn(&Subject) -> bool) -> Option<String> {
        let concerns = |at: &Vec<Step>| object_at(config, at).is_some_and(|subject| is_meant(&subject));
        let is_obstacle = |fault: &&Fault| {
            fault.severity != Severity::Note
                && (concerns(&fault.mistake.at) || fault.other.as_ref().is_some_and(concerns))
        };
        self.0.iter().find(is_obstacle).map(|fault| fault.mistake.text.clone())
    }
}

/// Whether it is the place of a disk, to whose target the server logs in.
fn is_login(at: &[Step]) -> bool {
    matches!(at, [.., Step::Key("lun"), Step::Index(_)])
}

fn named(rules: &[Rule]) -> Vec<(String, &Authentication)> {
    rules.iter().map(|rule| (rule.name.clone(), &rule.asks)).collect()
}

struct Reading<'s> {
    files: &'s SecretFiles,
    found: Vec<Fault>,
}

impl Reading<'_> {
    fn rules_of(&mut self, target: &Target, at: &[Step]) -> Vec<Rule> {
        let own = (target.chap.as_slice(), target.mutual_chap.as_ref());
        let mut rules = vec![self.rule(format!("target {}", target.name), at, own)];
        let has_users = !target.chap.is_empty() || target.hosts.iter().any(|host| !host.chap.is_empty());
        self.note_algorithms(target.chap_algorithms, has_users, at);
        for (index, host) in target.hosts.iter().enumerate() {
            let at = [at, &[Step::Key("host"), Step::Index(index)]].concat();
            let name = format!("target {}, host {}", target.name, host.name);
            rules.push(self.rule(name, &at, (&host.chap, host.mutual_chap.as_ref())));
            self.note_algorithms(host.chap_algorithms, true, &at);
        }
        for (index, lun) in target.luns.iter().enumerate() {
            let at = [at, &[Step::Key("lun"), Step::Index(index)]].concat();
            let name = format!("target {}, disk of LUN {}", target.name, lun.number);
            rules.extend(lun.login(self.files).map(|asks| Rule { name, at, asks }));
        }
        rules
    }

    fn rule(&mut self, name: String, at: &[Step], (chap, mutual): (&[Chap], Option<&Chap>)) -> Rule {
        let mut initiators: Vec<Credentials> = Vec::new();
        for (index, chap) in chap.iter().enumerate() {
            let at = [at, &[Step::Key("chap"), Step::Index(index)]].concat();
            let Some(credentials) = self.credentials(chap, &at) else { continue };
            let is_it = |known: &&Credentials| known.user == chap.user;
            if initiators.iter().find(is_it).is_some_and(|known| !known.secret.same_as(&credentials.secret)) {
                let text = format!("the user {} is there twice, and the first secret counts", chap.user);
                self.add(Severity::Note, text, [&*at, &[Step::Key("user")]].concat());
            }
            initiators.push(credentials);
        }
        let target = mutual.and_then(|chap| self.credentials(chap, &[at, &[Step::Key("mutual_chap")]].concat()));
        Rule {
            name,
            at: at.to_vec(),
            asks: Authentication::Chap { initiators, target, algorithms: ChapAlgorithms::ALL },
        }
    }

    /// Tells of algorithms that no user proves itself by, and of MD5 for initiators that know better ones.
    fn note_algorithms(&mut self, allowed: Option<ChapAlgorithms>, has_users: bool, at: &[Step]) {
        let Some(allowed) = allowed else { return };
        let text = if !has_users {
            "chap_algorithms has no effect without chap users: logins need no proof"
        } else if allowed == [ChapAlgorithm::Md5].into_iter().collect() {
            "chap_algorithms allows MD5 alone, also for initiators that know better ones; add sha256 and sha3-256"
        } else {
            return;
        };
        self.add(Severity::Note, text.into(), [at, &[Step::Key("chap_algorithms")]].concat());
    }

    /// A user with the secret, if it can be used.
    fn credentials(&mut self, chap: &Chap, at: &[Step]) -> Option<Credentials> {
        let at = [at, &[Step::Key("secret_file")]].concat();
        match self.files.secret(&chap.secret_file) {
            Ok(secret) => {
                if secret.is_short() {
                    let least = Secret::RECOMMENDED_BYTES;
                    let of = format!("the secret of {}", chap.user);
                    self.add(
                        Severity::Note,
                        format!("{of} is shorter than {least} bytes (RFC 7143 section 9.2.1)"),
                        at,
                    );
                }
                Some(Credentials { user: chap.user.clone(), secret })
            }
            Err(why) => {
                self.add(Severity::Degraded, why, at);
                None
            }
        }
    }

    fn add(&mut self, severity: Severity, text: String, at: Vec<Step>) {
        self.found.push(Fault { severity, mistake: Mistake { at, text }, other: None });
    }
}
