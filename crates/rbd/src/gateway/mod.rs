//! An image that several gateways offer: the driver of `lunette_gateway::Machine`.
//!
//! One thread has the machine. What waits for the cluster is done by a thread for each kind of it, so that nothing
//! waits for something else.

mod driver;
mod store;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use lunette_gateway::limits::{MAX_VALUE_BYTES, NOTIFY_TIMEOUT};
use lunette_gateway::{Answer, Event, HEADER_LEN, Member, Publication, Request, Value};

use crate::librbd::SharedObject;
use crate::limits::CLOSE_LIMIT;
use crate::{OpenError, RbdStore, RbdUrl};
use driver::{Driver, Told};
pub use store::GatewayStore;

/// A gateway of an image. Dropping it ends its threads, and leaves the image to others when they notice;
/// [`leave`](Self::leave) does so at once.
pub struct Gateway {
    told: Sender<Told>,
    /// Disconnected when the last thread has ended, and the connection to the cluster with it.
    ended: Receiver<Infallible>,
}

impl Gateway {
    /// Offers the image of `store` together with other gateways, this one by the target port group `group`. Waits for
    /// the cluster. `publish` is called with each new state, on a thread of the gateway, and calls what it gets beside
    /// it, on any thread, when commands find the state. `incarnation` is a random number.
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing and what to do.
    pub fn start(
        store: &Arc<GatewayStore>,
        group: u16,
        incarnation: u64,
        publish: impl FnMut(&Publication, Box<dyn FnOnce() + Send>) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (url, store) = (store.url(), Arc::clone(store));
        let object = Arc::new(open_object(url)?);
        let (told, receiver) = channel();
        let member = Member { group, incarnation };
        let (alive, ended) = channel();
        let driver = Driver::new(member, object, store, told.clone(), Box::new(publish), &alive);
        let driver = driver.map_err(OpenError::Thread)?;
        thread::Builder::new()
            .name("lunette-gateway".into())
            .spawn(move || {
                run(driver, &receiver);
                drop(alive);
            })
            .map_err(OpenError::Thread)?;
        Ok(Self { told, ended })
    }

    /// Whoever has it can ask the gateway for something, also when the gateway has ended.
    pub fn asker(&self) -> Asker {
        Asker(self.told.clone())
    }

    /// Gives up the image, and ends the membership and the connection to the cluster. Waits for that, for at most
    /// `limit`. Whether it is done.
    pub fn leave(self, limit: Duration) -> bool {
        let (deadline, (done, waits)) = (Instant::now() + limit, channel());
        // One that waits no longer needs no answer.
        self.asker().ask(Request::Leave, move |answer| _ = done.send(answer));
        let has_left = waits.recv_timeout(limit) == Ok(Answer::Done);
        // A driver that has ended needs no end.
        let _ = self.told.send(Told::End);
        let rest = deadline.saturating_duration_since(Instant::now());
        has_left && self.ended.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Asks a gateway.
pub struct Asker(Sender<Told>);

impl Asker {
    /// Asks the gateway for something. `answered` is called once, on a thread of the gateway; when the gateway has
    /// ended, with [`Answer::Refused`].
    pub fn ask(&self, request: Request, answered: impl FnOnce(Answer) + Send + 'static) {
        if let Err(unsent) = self.0.send(Told::Asked(request, Box::new(answered)))
            && let Told::Asked(_, answered) = unsent.0
        {
            answered(Answer::Refused);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A driver that has ended needs no end.
        let _ = self.told.send(Told::End);
    }
}

fn run(mut driver: Driver, told: &Receiver<Told>) {
    driver.handle(Event::Time);
    loop {
        match told.recv_timeout(driver.patience()) {
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(told) => driver.take(told),
            Err(RecvTimeoutError::Timeout) => driver.handle(Event::Time),
        }
    }
}

/// The object of an image's gateways. Its name has the number of the image, which a new image of the same name does not
/// have.
fn open_object(url: &RbdUrl) -> Result<SharedObject, OpenError> {
    let image = RbdStore::open(url, true)?;
    let object = SharedObject::open(url, &format!("lunette_gateways.{}", image.id()));
    if let Err(error) = image.close(CLOSE_LIMIT) {
        tracing::warn!(%error, image = %url, "an image goes on closing in the background");
    }
    object
}

fn read(object: &SharedObject) -> io::Result<Option<Arc<Value>>> {
    // One byte more than there may be shows that there are too many.
    let bytes = object.read(MAX_VALUE_BYTES + 1)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    Value::decode(&bytes).map(|value| Some(Arc::new(value))).map_err(io::Error::other)
}

fn store(object: &SharedObject, expected: u64, value: &Value) -> io::Result<bool> {
    // An object without a value is empty, which compares like zeroes.
    let header = if expected == 0 { [0; HEADER_LEN] } else { Value::header(expected) };
    object.replace(&header, &value.encode().map_err(io::Error::other)?)
}

/// The value of the object of an image's gateways; `None` when it never had any. Waits for the cluster.
///
/// # Errors
///
/// [`OpenError`] says what is missing and what to do.
pub fn gateways_of(url: &RbdUrl) -> Result<Option<Arc<Value>>, OpenError> {
    read(&open_object(url)?).map_err(OpenError::Image)
}

/// Makes the gateway of a group the owner of an image, from outside. Writes the wanted group, and waits until its
/// gateway has the image, for at most `limit`. Returns the time that it took.
///
/// # Errors
///
/// When the image or its object cannot be read, no such gateway is running, or it does not get the image in time.
pub fn move_image(url: &RbdUrl, to: u16, limit: Duration) -> Result<Duration, OpenError> {
    let (object, began) = (open_object(url)?, Instant::now());
    let failed = |text: String| OpenError::Image(io::Error::other(text));
    loop {
        let value = read(&object).map_err(OpenError::Image)?;
        let value = value.filter(|value| value.members.contains_key(&to));
        let value = value.ok_or_else(|| failed(format!("no gateway of group {to} has this image")))?;
        let is_owner = value.owner.as_ref().is_some_and(|owner| owner.is_active && owner.member.group == to);
        if is_owner && value.wanted.is_none() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > limit {
            return Err(failed(format!(
                "the gateway of group {to} has not got the image within {} s",
                limit.as_secs()
            )));
        }
        if value.wanted != Some(to) {
            let wanted = if is_owner { None } else { Some(to) };
            let next = Value { version: value.version + 1, wanted, ..Value::clone(&value) };
            if store(&object, value.version, &next).map_err(OpenError::Image)? {
                // Those who miss it find it with their next change.
                let told = object.notify(&driver::payload(next.version, None), NOTIFY_TIMEOUT);
                told.map_err(OpenError::Image)?;
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The time between two looks of [`move_image`].
const POLL_INTERVAL: Duration = Duration::from_millis(20);
