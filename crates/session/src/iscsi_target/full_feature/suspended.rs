//! Tasks that outlive the stream of their connection, and tasks that another one has brought (RFC 7143 section 7.2.2).

use lunette_buffer::Buffer;
use lunette_pdu::{InitiatorTaskTag, LunField, SerialNumber};

use super::FullFeature;
use crate::iscsi_target::event::{Response, Signal, TaskTag};
use crate::iscsi_target::tasks::known_task::KnownTask;
use crate::iscsi_target::tasks::task::{Phase, Task};
use crate::iscsi_target::transport::answer::{Answer, Answered};
use crate::iscsi_target::transport::sender::Sender;
use crate::iscsi_target::turn_context::TurnContext;

/// A task on its way from a suspended connection to another one of its session.
pub(crate) struct MovedTask {
    state: Moved,
    /// The task's data, when the driver has yet to hear that it is complete.
    complete: Option<Buffer>,
    tag: Option<TaskTag>,
}

enum Moved {
    /// The task has not been answered.
    Task(Box<Task>),
    /// The task has been answered, and the initiator has not acknowledged that.
    Answered(Box<Answer>),
}

impl MovedTask {
    /// The task's name on the connection that has lost it, until its answer was sent.
    pub(crate) fn name(&self) -> Option<TaskTag> {
        self.tag
    }
}

impl std::fmt::Debug for MovedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let itt = match &self.state {
            Moved::Task(task) => task.itt,
            Moved::Answered(answer) => answer.itt(),
        };
        write!(f, "MovedTask({itt})")
    }
}

/// The data of a task, when the driver has yet to hear that it is complete. It will not hear: the tag names nothing any
/// more.
fn take_data_out(tag: TaskTag, cx: &mut TurnContext<'_>) -> Option<Buffer> {
    let is_its = |event: &Signal| matches!(event, Signal::DataOut { task, .. } if *task == tag);
    let event = cx.events.iter().position(is_its).and_then(|at| cx.events.remove(at))?;
    if let Signal::DataOut { buffer, .. } = event { Some(buffer) } else { None }
}

impl FullFeature {
    /// The stream is lost. What came before its turn is discarded and may come again (RFC 7143 section 11.14); so may
    /// the data that was `arriving`. Requests that are no commands are not answered any more: their initiator asks
    /// again.
    ///
    /// RFC 7143 section 7.14: immediate commands do not outlive their connection.
    pub(crate) fn suspend(&mut self, arriving: Option<(TaskTag, u32, u32)>, cx: &mut TurnContext<'_>) {
        self.discard_early(cx);
        self.tasks.interrupt(arriving);
        for tag in self.tasks.tags_where(|task| task.order.immediate) {
            if self.tasks.get(tag).is_some_and(|task| !matches!(task.phase, Phase::Draining(_))) {
                // The driver would end the task when it hears that its data is complete.
                take_data_out(tag, cx);
                cx.events.push_back(Signal::Aborted(tag));
            }
            self.forget(tag, cx);
        }
    }

    /// The data of a task goes there, as far as it has not come another connection will ask for it.
    pub(crate) fn keep_data(&mut self, tag: TaskTag, buffer: Buffer, cx: &mut TurnContext<'_>) {
        let Some(task) = self.tasks.get_mut(tag).filter(|task| task.is_undecided()) else { return };
        task.data.want(buffer, task.data_out_len);
        task.phase = Phase::Collecting;
        if let Some(buffer) = task.start_running() {
            cx.events.push_back(Signal::DataOut { task: tag, buffer });
        }
    }

    /// A task has ended; another connection will answer it.
    pub(crate) fn keep_answer(&mut self, tag: TaskTag, response: Response) {
        let Some(task) = self.tasks.get_mut(tag).filter(|task| !matches!(task.phase, Phase::Draining(_))) else {
            return;
        };
        task.data.discard();
        task.phase = Phase::Draining(Some(response));
    }

    /// A task was aborted.
    pub(crate) fn forget(&mut self, tag: TaskTag, cx: &mut TurnContext<'_>) {
        if let Some(task) = self.tasks.remove(tag) {
            self.release(task.order.immediate, cx);
        }
    }

    pub(crate) fn known_task(&self, itt: InitiatorTaskTag, sender: &Sender) -> Option<KnownTask> {
        let named = self.tasks.find(itt).and_then(|tag| Some((tag, self.tasks.get(tag)?)));
        let Some((tag, task)) = named.filter(|(_, task)| !task.is_silent()) else {
            let answer = sender.retains()?.answer_of(itt).filter(|answer| !answer.order().immediate)?;
            return Some(KnownTask { tag: None, order: answer.order(), lun: answer.lun() });
        };
        let ended = matches!(task.phase, Phase::Draining(_));
        Some(KnownTask { tag: (!ended).then_some(tag), order: task.order, lun: task.lun })
    }

    /// Whether this is the name of a request that is no command and has not been answered: task management, a text
    /// negotiation, a logout.
    pub(crate) fn is_request(&self, itt: InitiatorTaskTag) -> bool {
        self.functions.is_pending(itt) || self.text.is_open(itt) || self.logout.is_request(itt)
    }

    pub(crate) fn release_task(&mut self, itt: InitiatorTaskTag, cx: &mut TurnContext<'_>) -> Option<MovedTask> {
        let named = self.tasks.find(itt).filter(|tag| self.tasks.get(*tag).is_some_and(|task| !task.is_silent()));
        let Some(task) = named.and_then(|tag| self.tasks.remove(tag)) else {
            let answer = cx.sender.retained()?.take(itt)?;
            return Some(MovedTask { state: Moved::Answered(Box::new(answer)), complete: None, tag: None });
        };
        self.numbering.task_left();
        let complete = named.and_then(|tag| take_data_out(tag, cx));
        Some(MovedTask { state: Moved::Task(Box::new(task)), complete, tag: named })
    }

    pub(crate) fn adopt_task(
        &mut self,
        MovedTask { state, complete, .. }: MovedTask,
        exp_data_sn: u32,
        cx: &mut TurnContext<'_>,
    ) -> Option<TaskTag> {
        let mut task = match state {
            Moved::Task(task) => *task,
            Moved::Answered(answer) => {
                self.answer_again(*answer, exp_data_sn, cx);
                return None;
            }
        };
        // A task of that name that has ended here is not answered any more. One that lives keeps others of its name
        // away.
        if let Some(ended) = self.tasks.find(task.itt).and_then(|tag| self.tasks.remove(tag))
            && !ended.is_silent()
        {
            self.release(ended.order.immediate, cx);
        }
        self.numbering.task_came();
        task.data.resume(exp_data_sn);
        match std::mem::replace(&mut task.phase, Phase::Running) {
            Phase::Draining(Some(response)) if !task.is_fenced => {
                self.answer(&Answered::from(&task), response, cx);
                None
            }
            phase => {
                let collects = matches!(phase, Phase::Collecting);
                task.phase = phase;
                let tag = self.tasks.insert(task)?;
                cx.events.extend(complete.map(|buffer| Signal::DataOut { task: tag, buffer }));
                if collects {
                    self.collect(tag, cx);
                }
                Some(tag)
            }
        }
    }

    /// The status comes again, and the data that the initiator does not have. A number that no Data-In PDU had means
    /// nothing (RFC 7143 section 11.5.6).
    fn answer_again(&self, mut answer: Answer, exp_data_sn: u32, cx: &mut TurnContext<'_>) {
        let _ = answer.acknowledge_data(exp_data_sn);
        answer.recut(&self.parameters);
        cx.push_answer(answer);
    }

    /// A request on another connection covers these tasks: what was kept of their answers is not sent any more.
    pub(crate) fn drop_answers(lun: Option<LunField>, before: SerialNumber, sender: &mut Sender) {
        if let Some(retained) = sender.retained() {
            let concerns = |answer: &Answer| lun.is_none_or(|lun| lun == answer.lun());
            retained.drop_answers(|answer| concerns(answer) && answer.order().is_covered_by(before));
        }
    }

    pub(crate) fn keeps_nothing(&self, sender: &Sender) -> bool {
        let is_recoverable = |answer: &Answer| !answer.order().immediate;
        self.tasks.tags_where(|task| !task.is_silent()).is_empty()
            && sender.retains().is_none_or(|retained| !retained.answers().any(is_recoverable))
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.tasks.kept_bytes()
    }
}
