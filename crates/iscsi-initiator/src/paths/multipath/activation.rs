//! SET TARGET PORT GROUPS over one path.

use lunette_scsi::port_groups::{self, AccessState, Management};
use lunette_scsi::requests;

use super::{Multipath, State};
use crate::paths::check;
use crate::request::Request;
use crate::{Error, Portal};

impl Multipath {
    /// SET TARGET PORT GROUPS: makes the target port group of a path active/optimized.
    pub(crate) async fn activate(&self, portal: &Portal) -> Result<(), Error> {
        let path = self.routes.iter().position(|route| route.portal == *portal);
        let (session, group) = {
            let state = self.lock();
            let up = path.and_then(|path| Some((state.sessions[path].clone()?, state.machine.access(path)?.0)));
            let (session, group) = up.ok_or_else(|| self.no_such_path(portal, &state))?;
            let is_explicit = state.management.is_some_and(Management::is_explicit);
            (session, group.filter(|_| is_explicit).ok_or(Error::NotExplicit)?)
        };
        let list = port_groups::emit_set(&[(group, AccessState::ActiveOptimized)]);
        let mut buffer = session.buffer(list.len())?;
        buffer.copy_from_slice(&list);
        let cdb = requests::set_target_port_groups(list.len() as u32);
        session.execute(Request::new(self.lun, cdb).with_data_out(buffer.share())).await.check_whole()?;
        // The port that is asked learns of no unit attention.
        let groups = check::states(&session, self.lun).await?;
        let mut state = self.lock();
        if let Some(path) = path {
            let generation = state.machine.generation(path);
            state.machine.states(path, generation, groups.as_deref(), self.now());
        }
        self.act(state);
        Ok(())
    }

    fn no_such_path(&self, portal: &Portal, state: &State) -> Error {
        let path = self.routes.iter().position(|route| route.portal == *portal);
        let error = path.and_then(|path| state.errors[path].clone());
        let list: Vec<String> = self.routes.iter().map(|route| route.portal.to_string()).collect();
        error.unwrap_or_else(|| Error::NoPath { paths: format!("{portal} is none of {}", list.join(", ")) })
    }
}
