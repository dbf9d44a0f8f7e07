//! A value that several servers share in one object of a pool, and questions that all of them answer.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::librbd::{SharedObject, Watcher};
use crate::limits::{MANAGE_LIMIT, MAX_QUESTION_BYTES, MAX_QUESTIONS, MAX_REGISTER_BYTES};
use crate::{OpenError, PoolUrl};

/// The bytes of the version in front of the value.
const VERSION_LEN: usize = 8;

/// The time between two attempts to watch the object.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// A value in an object of a pool. Each server that has it open answers questions of the others.
pub struct Register {
    object: Arc<SharedObject>,
    told: Sender<Told>,
}

type Answer = dyn Fn(Option<&[u8]>) -> Vec<u8> + Send + Sync;

enum Told {
    Asked(Asked),
    Lost,
    End,
}

struct Asked {
    id: u64,
    cookie: u64,
    question: Vec<u8>,
}

/// The watch of the object, which passes its news on: its calls may not wait.
struct Post(Sender<Told>);

impl Watcher for Post {
    fn notified(&self, id: u64, cookie: u64, payload: &[u8]) {
        if payload.len() > MAX_QUESTION_BYTES {
            return;
        }
        // A register that is gone answers nothing.
        let _ = self.0.send(Told::Asked(Asked { id, cookie, question: payload.to_vec() }));
    }

    fn lost(&self) {
        let _ = self.0.send(Told::Lost);
    }
}

impl Register {
    /// Opens the object `name` of a pool, which need not be there. Waits for the cluster. `answer` answers questions,
    /// each on a thread of its own, up to [`MAX_QUESTIONS`] at once. It is called without one when the server hears
    /// questions for the first time, and after a time in which it may have missed some.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing and what to do.
    pub fn open(
        pool: &PoolUrl,
        name: &str,
        answer: impl Fn(Option<&[u8]>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let object = Arc::new(SharedObject::open_in(pool, name, Some(MANAGE_LIMIT))?);
        let (told, news) = channel();
        object.watch(Box::new(Post(told.clone()))).map_err(OpenError::Image)?;
        let (watched, post) = (Arc::clone(&object), told.clone());
        let answer: Arc<Answer> = Arc::new(answer);
        let run = move || {
            respond(&watched, &answer, None);
            serve(&watched, &news, &post, &answer);
        };
        thread::Builder::new().name("lunette-register".into()).spawn(run).map_err(OpenError::Thread)?;
        Ok(Self { object, told })
    }

    /// The value and its version; an empty one with version 0 before the first.
    ///
    /// # Errors
    ///
    /// When the cluster does not answer, or the object is no such value.
    pub fn read(&self) -> io::Result<(u64, Vec<u8>)> {
        // One byte more than there may be shows that there are too many.
        let bytes = self.object.read(VERSION_LEN + MAX_REGISTER_BYTES + 1)?;
        if bytes.is_empty() {
            return Ok((0, bytes));
        }
        match bytes.split_first_chunk::<VERSION_LEN>() {
            Some((version, value)) if value.len() <= MAX_REGISTER_BYTES => {
                Ok((u64::from_be_bytes(*version), value.to_vec()))
            }
            _ => Err(io::Error::other("the object is not one of Lunette")),
        }
    }

    /// Replaces the value of this version by the next one. Whether it still had that version.
    ///
    /// # Errors
    ///
    /// When the value is too long, or the cluster does not answer. Then the value may be replaced later.
    pub fn replace(&self, version: u64, value: &[u8]) -> io::Result<bool> {
        if value.len() > MAX_REGISTER_BYTES {
            return Err(io::Error::other(format!("it has more than {MAX_REGISTER_BYTES} bytes")));
        }
        let next = version.checked_add(1).ok_or_else(|| io::Error::other("there are no versions left"))?;
        // An object without a value is empty, which compares like zeroes.
        self.object.replace(&version.to_be_bytes(), &[&next.to_be_bytes(), value].concat())
    }

    /// Asks all servers, this one among them. The answers that came within `limit`, but for those that are longer than
    /// [`MAX_QUESTION_BYTES`].
    ///
    /// # Errors
    ///
    /// When the cluster does not answer.
    pub fn ask(&self, question: &[u8], limit: Duration) -> io::Result<Vec<Vec<u8>>> {
        let mut answers = self.object.notify(question, limit)?;
        answers.retain(|answer| answer.len() <= MAX_QUESTION_BYTES);
        Ok(answers)
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        // A thread that has ended needs no end.
        let _ = self.told.send(Told::End);
    }
}

/// Answers questions until the register is dropped, and watches the object again when the watch is lost.
fn serve(object: &Arc<SharedObject>, news: &Receiver<Told>, post: &Sender<Told>, answer: &Arc<Answer>) {
    let mut is_lost = false;
    loop {
        let told = if is_lost { news.recv_timeout(WATCH_PAUSE) } else { news.recv().map_err(Into::into) };
        match told {
            Ok(Told::Asked(asked)) => respond(object, answer, Some(asked)),
            Ok(Told::Lost) => is_lost = true,
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => return object.unwatch(),
            Err(RecvTimeoutError::Timeout) => match object.watch(Box::new(Post(post.clone()))) {
                Ok(()) => {
                    is_lost = false;
                    respond(object, answer, None);
                }
                Err(error) => tracing::debug!(%error, "the object that servers share is not watched yet"),
            },
        }
    }
}

/// Has a thread answer a question, so that one that takes long keeps no other one waiting.
fn respond(object: &Arc<SharedObject>, answer: &Arc<Answer>, asked: Option<Asked>) {
    // Each thread has it, and so has the thread that calls this.
    if Arc::strong_count(answer) > MAX_QUESTIONS {
        return tracing::debug!("a question of another server is not answered: there are too many");
    }
    let (object, answer) = (Arc::clone(object), Arc::clone(answer));
    let run = move || {
        let said = answer(asked.as_ref().map(|asked| &*asked.question));
        let Some(Asked { id, cookie, .. }) = asked else { return };
        if let Err(error) = object.acknowledge(id, cookie, &said) {
            tracing::debug!(%error, "an answer to another server was not sent");
        }
    };
    if let Err(error) = thread::Builder::new().name("lunette-answer".into()).spawn(run) {
        tracing::warn!(%error, "a question of another server is not answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_that_are_too_long_are_not_heard() {
        let (told, news) = channel();
        let post = Post(told);
        post.notified(1, 2, &vec![0; MAX_QUESTION_BYTES + 1]);
        post.notified(3, 4, &vec![0; MAX_QUESTION_BYTES]);
        let Ok(Told::Asked(asked)) = news.try_recv() else { panic!("a question that may be asked is lost") };
        assert_eq!((asked.id, asked.cookie, asked.question.len()), (3, 4, MAX_QUESTION_BYTES));
        assert!(news.try_recv().is_err());
    }
}
