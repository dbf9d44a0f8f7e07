//! A secret of CHAP has one direction over all rules of the server (RFC 7143 section 9.2.1), and over its own logins to
//! the targets of its disks.
//!
//! Of two rules that use one secret in both directions one is shut: no initiator logs in by it, and no later host takes
//! its place. All others are served.

use std::iter;

use lunette_api::Subject;
use lunette_session::{Authentication, check_secrets};

use super::{Served, ServedTarget};
use crate::config::SHUT;

impl Served {
    /// Shuts rules until each secret has one direction. Gives them, with the reason. `before` is what is served: its
    /// rules stay when another one has come.
    pub(crate) fn part_secrets(&mut self, before: Option<&Self>) -> Vec<(Subject, String)> {
        let mut shut = Vec::new();
        while let Some((subject, why)) = self.shared_secret(before) {
            self.shut(&subject, &why);
            shut.push((subject, why));
        }
        shut
    }

    /// The rules whose secrets cannot be used.
    pub(crate) fn is_unusable(&self, rule: &Subject) -> bool {
        match rule {
            Subject::Discovery => self.discovery_unusable.is_some(),
            _ => self.targets.values().any(|target| target.unusable.iter().any(|(known, _)| known == rule)),
        }
    }

    /// All rules, with their names.
    fn rules(&self) -> Vec<(Subject, &Authentication)> {
        let of_target = |(name, target): (&String, &'_ ServedTarget)| {
            let host = |host: &lunette_target::HostConfig| Subject::Host {
                target: name.clone(),
                name: host.host.name.to_string(),
            };
            (Subject::Target(name.clone()), target.hosts.iter().map(host).collect::<Vec<_>>())
        };
        let mut rules = vec![(Subject::Discovery, &self.discovery)];
        for (entry, target) in self.targets.iter().map(of_target).zip(self.targets.values()) {
            let (own, hosts) = entry;
            let of_hosts = hosts.into_iter().zip(&target.hosts);
            rules.extend(iter::once((own, &target.authentication)));
            rules.extend(of_hosts.filter_map(|(name, host)| Some((name, host.host.authentication.as_ref()?))));
        }
        rules
    }

    /// The rule to shut, and why.
    fn shared_secret(&self, before: Option<&Self>) -> Option<(Subject, String)> {
        let logins = self.logins();
        let with = |login: Option<&(Subject, Authentication)>| self.shared_with(login, before);
        with(None).or_else(|| logins.iter().find_map(|login| with(Some(login))))
    }

    /// The logins of this server to the targets of its disks.
    fn logins(&self) -> Vec<(Subject, Authentication)> {
        let disks = self.targets.iter().flat_map(|(name, target)| target.disks.values().map(move |disk| (name, disk)));
        disks
            .filter_map(|(name, disk)| Some((Subject::lun(name, disk.entry.number), disk.entry.login(&self.secrets)?)))
            .collect()
    }

    /// The rule to shut for what it shares with another one or with a login, which stays.
    fn shared_with(
        &self,
        login: Option<&(Subject, Authentication)>,
        before: Option<&Self>,
    ) -> Option<(Subject, String)> {
        let mut rules = self.rules();
        rules.extend(login.map(|(subject, rule)| (subject.clone(), rule)));
        let named: Vec<_> = rules.iter().map(|(subject, rule)| (subject.to_string(), *rule)).collect();
        let shared = check_secrets(&named).err()?;
        let find = |name: &str| named.iter().position(|(known, _)| known == name).map(|at| &rules[at]);
        let (prover, asker) = (find(&shared.prover)?, find(&shared.asker)?);
        let old = before.map(Self::rules).unwrap_or_default();
        // The rule that was served as it is now goes on, then the one that was served at all.
        let seniority = |(subject, rule): &(Subject, &Authentication)| {
            let usable = old.iter().find(|(known, _)| known == subject);
            let usable = usable.filter(|_| before.is_some_and(|before| !before.is_unusable(subject)));
            usable.map(|(_, old)| old.same_as(rule))
        };
        let is_login = |rule: &(Subject, &Authentication)| matches!(rule.0, Subject::Lun { .. });
        let gone = match (is_login(prover), is_login(asker)) {
            // Its own secrets are those of one login, which does not begin then.
            (true, true) => return None,
            (true, false) => asker,
            (false, false) if seniority(prover) > seniority(asker) => asker,
            (false, _) => prover,
        };
        Some((gone.0.clone(), shared.to_string()))
    }

    fn shut(&mut self, rule: &Subject, why: &str) {
        if *rule == Subject::Discovery {
            self.discovery = SHUT;
            self.discovery_unusable = Some(with(self.discovery_unusable.take(), why));
            return;
        }
        let Some(target) = rule.target().and_then(|name| self.targets.get_mut(name)) else { return };
        match rule {
            Subject::Host { name, .. } => {
                if let Some(host) = target.hosts.iter_mut().find(|host| &*host.host.name == name.as_str()) {
                    host.host.authentication = Some(SHUT);
                }
            }
            _ => target.authentication = SHUT,
        }
        let known = target.unusable.iter().position(|(known, _)| known == rule);
        let known = known.map(|at| target.unusable.remove(at).1);
        target.unusable.push((rule.clone(), with(known, why)));
    }
}

fn with(known: Option<String>, why: &str) -> String {
    known.map_or_else(|| why.to_owned(), |known| format!("{known}; {why}"))
}
