//! Task management functions, and what must hold when they are answered.

use lunette_initiator::{Error, Session};
use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Response};

use super::{Answer, Clients};
use crate::env::Env;
use crate::scenario::UNITS;
use crate::server::lun;
use crate::store::Stores;

/// A function that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    function: Function,
    client: usize,
    unit: usize,
    /// When, as the stores count.
    moment: u64,
}

impl Clients {
    pub(super) fn manage(&mut self, client: usize, session: Session, stores: &mut Stores, env: &mut Env) {
        let asked = Asked { function: draw(env), client, unit: env.dice.place(UNITS), moment: stores.ask() };
        env.note(|| format!("initiator {client} asks for {} on unit {}", asked.function, asked.unit));
        self.ask(None, async move {
            let answer = session.manage_tasks(asked.function, lun(asked.unit as u16)).await;
            Answer::Managed(asked, answer)
        });
    }

    /// When the answer comes, no store works any more for what the function has ended.
    pub(super) fn managed(asked: Asked, answer: &Result<Response, Error>, stores: &Stores, env: &mut Env) {
        let Asked { function, client, unit, moment } = asked;
        env.note(|| format!("{function} of initiator {client}: {answer:?}"));
        let Ok(answer) = answer else { return };
        env.tally.happening(name(function));
        let is_clear = match function {
            _ if *answer != Response::FUNCTION_COMPLETE => true,
            Function::LOGICAL_UNIT_RESET => stores.is_clear_of(moment, Some(unit), None),
            Function::TARGET_WARM_RESET | Function::TARGET_COLD_RESET => stores.is_clear_of(moment, None, None),
            Function::ABORT_TASK_SET | Function::CLEAR_TASK_SET => {
                stores.is_clear_of(moment, Some(unit), Some((client, &env.oracle())))
            }
            Function::I_T_NEXUS_RESET => stores.is_clear_of(moment, None, Some((client, &env.oracle()))),
            _ => true,
        };
        if !is_clear {
            env.fail(format!(
                "{function} of initiator {client} is complete, and a store still works for what it ended"
            ));
        }
    }
}

fn draw(env: &mut Env) -> Function {
    env.dice.pick(&[
        Function::ABORT_TASK_SET,
        Function::ABORT_TASK_SET,
        Function::CLEAR_TASK_SET,
        Function::LOGICAL_UNIT_RESET,
        Function::LOGICAL_UNIT_RESET,
        Function::TARGET_WARM_RESET,
        Function::TARGET_COLD_RESET,
        Function::I_T_NEXUS_RESET,
        Function::QUERY_TASK_SET,
        Function::QUERY_ASYNCHRONOUS_EVENT,
    ])
}

fn name(function: Function) -> &'static str {
    match function {
        Function::ABORT_TASK_SET => "ABORT TASK SET",
        Function::CLEAR_TASK_SET => "CLEAR TASK SET",
        Function::LOGICAL_UNIT_RESET => "LOGICAL UNIT RESET",
        Function::TARGET_WARM_RESET => "TARGET WARM RESET",
        Function::TARGET_COLD_RESET => "TARGET COLD RESET",
        Function::I_T_NEXUS_RESET => "I_T NEXUS RESET",
        Function::QUERY_TASK_SET => "QUERY TASK SET",
        _ => "QUERY ASYNCHRONOUS EVENT",
    }
}
