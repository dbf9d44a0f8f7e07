//! Task management functions: what is asked, and what the answer has to mean.

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};

use super::{Client, Question};
use crate::env::Env;
use crate::oracle::User;
use crate::request::lun;
use crate::scenario::UNITS;
use crate::server::EVENT;

/// A request, as far as its answer is judged by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    function: Function,
    unit: usize,
    referenced: Option<User>,
    /// The last command before it.
    last: User,
    /// Whether a command to the unit was under way.
    is_busy: bool,
    /// Whether the device had the command that it names.
    is_running: bool,
}

impl Asked {
    fn is_of_all(self) -> bool {
        matches!(self.function, Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET)
    }

    fn is_query(self) -> bool {
        self.function >= Function::QUERY_TASK
    }
}

impl Client {
    pub(super) fn manage(&mut self, env: &mut Env) {
        let function = draw(env);
        let names_one = matches!(function, Function::ABORT_TASK | Function::QUERY_TASK);
        let at = env.dice.place(self.open.len().max(1));
        let named = self.open.iter().nth(at).filter(|_| names_one);
        if named.is_none() && names_one {
            return;
        }
        // Now and then it is a unit that is not there.
        let drawn = if env.dice.one_in(8) { UNITS } else { env.dice.place(UNITS) };
        let unit = named.map_or(drawn, |(_, open)| open.request.extent.unit);
        let (tag, referenced) = (named.map(|(_, open)| open.tag), named.map(|(user, _)| *user));
        let is_busy = self.open.values().any(|open| open.request.extent.unit == unit);
        let is_running = referenced.is_some_and(|user| self.is_undisturbed(user, env));
        let last = env.oracle.next_user() - 1;
        let asked = Asked { function, unit, referenced, last, is_busy, is_running };
        self.ask(Question::Management(asked), env, |session, user, env| {
            env.note(|| format!("request {user}: {function} {:?} {referenced:?}", lun(unit)));
            session.manage_tasks(user, function, lun(unit), tag)
        });
    }

    pub(super) fn managed(&mut self, user: u64, answer: Answer, information: [u8; 3], env: &mut Env) {
        let Some(Question::Management(asked)) = self.questions.remove(&user) else {
            return env.fail(format!("request {user} was answered and waits for nothing"));
        };
        env.tally.happening(name(asked.function));
        let needs_unit = !asked.is_of_all() && asked.referenced.is_none();
        let is_missing = needs_unit && asked.unit >= UNITS;
        let is_right = match answer {
            // Too many at a time, or the connection was lost with it.
            Answer::FUNCTION_REJECTED => true,
            Answer::LUN_DOES_NOT_EXIST => is_missing,
            Answer::TASK_DOES_NOT_EXIST => asked.function == Function::ABORT_TASK,
            Answer::FUNCTION_SUCCEEDED => !is_missing && asked.is_query() && may_succeed(asked, information, env),
            Answer::FUNCTION_COMPLETE if asked.function == Function::QUERY_TASK => {
                !(asked.is_running && asked.referenced.is_some_and(|user| self.is_undisturbed(user, env)))
            }
            Answer::FUNCTION_COMPLETE => !is_missing && information == [0; 3],
            _ => false,
        };
        if !is_right {
            env.fail(format!("request {user} ({}) was answered with {answer}, {information:?}", asked.function));
        }
        if answer != Answer::FUNCTION_COMPLETE || asked.is_query() {
            return;
        }
        // Whatever it covers has ended before its answer.
        let is_covered = |command: &User, unit: usize| match asked.referenced {
            Some(referenced) => *command == referenced,
            None => *command <= asked.last && (asked.is_of_all() || unit == asked.unit),
        };
        let left = self.open.iter().find(|(command, open)| is_covered(command, open.request.extent.unit));
        if let Some((command, _)) = left {
            env.fail(format!("request {user} ({}) is complete and command {command} is not", asked.function));
        }
    }

    /// Whether the device has a command and nothing is under way that may end it.
    fn is_undisturbed(&self, user: User, env: &Env) -> bool {
        let aborts = |question: &Question| matches!(question, Question::Management(asked) if !asked.is_query());
        env.oracle.is_running(user) && !self.questions.values().any(aborts)
    }
}

/// Whether a query may have found what it asked for.
fn may_succeed(asked: Asked, information: [u8; 3], env: &Env) -> bool {
    match asked.function {
        // It may wait for its turn at the target.
        Function::QUERY_TASK => true,
        Function::QUERY_TASK_SET => asked.is_busy || env.oracle.has_younger(asked.last, asked.unit),
        _ => information == EVENT,
    }
}

fn draw(env: &mut Env) -> Function {
    match env.dice.below(16) {
        0..6 => Function::ABORT_TASK,
        6 => Function::ABORT_TASK_SET,
        7 => Function::CLEAR_TASK_SET,
        8 => Function::LOGICAL_UNIT_RESET,
        9 => Function::TARGET_WARM_RESET,
        10 => Function::TARGET_COLD_RESET,
        11 | 12 => Function::QUERY_TASK,
        13 | 14 => Function::QUERY_TASK_SET,
        _ => Function::QUERY_ASYNCHRONOUS_EVENT,
    }
}

fn name(function: Function) -> &'static str {
    match function {
        Function::ABORT_TASK => "ABORT TASK",
        Function::ABORT_TASK_SET => "ABORT TASK SET",
        Function::CLEAR_TASK_SET => "CLEAR TASK SET",
        Function::LOGICAL_UNIT_RESET => "LOGICAL UNIT RESET",
        Function::TARGET_WARM_RESET => "TARGET WARM RESET",
        Function::TARGET_COLD_RESET => "TARGET COLD RESET",
        Function::QUERY_TASK => "QUERY TASK",
        Function::QUERY_TASK_SET => "QUERY TASK SET",
        _ => "QUERY ASYNCHRONOUS EVENT",
    }
}
