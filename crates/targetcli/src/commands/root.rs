//! The commands of the root: saved configurations and sessions.

use serde_json::Value;

use crate::failure::Failure;
use crate::model::Model;
use crate::saved::{self, Only};
use crate::shell::{Call, is};
use crate::targetcli::VERSION;

pub(crate) fn saveconfig(call: &mut Call<'_>) -> Result<(), Failure> {
    let [file] = call.line.bind(["savefile"], 0)?;
    let file = call.world.save(file, call.model)?;
    call.say(format!("Configuration saved to {file}"));
    Ok(())
}

pub(crate) fn restoreconfig(call: &mut Call<'_>) -> Result<(), Failure> {
    let [file, clear, target, object] =
        call.line.bind(["savefile", "clear_existing", "target", "storage_object"], 0)?;
    // Older versions take the word alone.
    let is_cleared = clear == Some("clear_existing") || is(clear, false)?;
    let file = file.map_or_else(|| call.world.saved_file(), str::to_owned);
    let Some(text) = call.world.read_saved(&file)? else {
        call.say(format!("Restore file {file} not found"));
        return Ok(());
    };
    let only = Only { target, object };
    if is_cleared {
        saved::clear(call.model, only)?;
    }
    let errors = saved::restore(call.model, &text, only, &|| call.world.new_serial())?;
    if errors.is_empty() {
        call.say(format!("Configuration restored from {file}"));
    } else {
        let count = errors.len();
        let text = format!("Configuration restored, {count} recoverable errors:\n{}", errors.join("\n"));
        call.reply.failure = Some(Failure::new(text));
    }
    Ok(())
}

pub(crate) fn clearconfig(call: &mut Call<'_>) -> Result<(), Failure> {
    let [confirm] = call.line.bind(["confirm"], 0)?;
    if !is(confirm, false)? {
        return Err(Failure::new("As a precaution, confirm=True needs to be set"));
    }
    let Model { objects, targets, .. } = call.model;
    objects.clear();
    targets.clear();
    call.say("All configuration cleared");
    Ok(())
}

pub(crate) fn version(call: &mut Call<'_>) -> Result<(), Failure> {
    call.line.bind([], 0)?;
    call.say(format!("targetcli version {VERSION}"));
    Ok(())
}

pub(crate) fn sessions(call: &mut Call<'_>) -> Result<(), Failure> {
    let [action, sid] = call.line.bind(["action", "sid"], 0)?;
    let is_detailed = match action.unwrap_or("list") {
        "list" => false,
        "detail" => true,
        _ => return Err(Failure::new("action must be one of: list, detail")),
    };
    let number =
        |sid: &str| sid.parse::<u64>().map_err(|_| Failure::new(format!("sid must be a number, '{sid}' given")));
    let wanted = sid.map(number).transpose()?;
    let sessions = call.world.sessions()?;
    let id = |session: &Value| session.get("id").and_then(Value::as_u64).unwrap_or_default();
    let chosen: Vec<&Value> =
        sessions.iter().filter(|session| wanted.is_none_or(|wanted| id(session) == wanted)).collect();
    match (chosen.is_empty(), wanted) {
        (true, Some(sid)) => return Err(Failure::new(format!("no session found with sid {sid}"))),
        (true, None) => call.say("(no open sessions)"),
        (false, _) => {}
    }
    for session in chosen {
        let text = |key: &str| session.get(key).and_then(Value::as_str).unwrap_or_default();
        let initiator = text("initiator").to_owned();
        let kind = if text("target").is_empty() { "Discovery" } else { "Normal" };
        let sid = id(session);
        call.say(format!("alias: {initiator}\tsid: {sid} type: {kind} session-state: LOGGED_IN"));
        if is_detailed {
            detail(call, session, &initiator, text("target"));
        }
    }
    Ok(())
}

fn detail(call: &mut Call<'_>, session: &Value, initiator: &str, target: &str) {
    let is_proven = session.get("user").is_some_and(|user| !user.is_null());
    let proof = if is_proven { " (authenticated)" } else { " (NOT AUTHENTICATED)" };
    call.say(format!("    name: {initiator}{proof}"));
    let mut lines = Vec::new();
    if let Some(target) = call.model.targets.get(target)
        && let Ok(acl) = target.acl(&initiator.to_lowercase())
    {
        for (number, mapped) in target.mapped(acl) {
            let object = target.luns.get(&mapped.lun).map(|lun| lun.object.to_string()).unwrap_or_default();
            let mode = if mapped.write_protect { "r" } else { "rw" };
            lines.push(format!("    mapped-lun: {number} backstore: {object} mode: {mode}"));
        }
    }
    let peers = session.get("peers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for (cid, peer) in peers.enumerate() {
        lines.push(format!("    address: {peer} (TCP)  cid: {cid} connection-state: LOGGED_IN"));
    }
    call.reply.lines.extend(lines);
}
