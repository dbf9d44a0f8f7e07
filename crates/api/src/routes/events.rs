//! `/v1/events`: what happens, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use crate::callers::Caller;
use crate::limits::{MAX_EVENT_READERS, MAX_EVENTS_BEHIND};
use crate::problem::Problem;
use crate::proofs::Proof;
use crate::server::Event;

/// How often a stream without events shows that it is alive.
const ALIVE: Duration = Duration::from_secs(15);

/// Read events as they happen
///
/// Each is one server-sent event, whose data is an event as JSON. A reader that falls behind misses some, and is told
/// how many. The stream ends with the next event after its token or certificate counts no longer, or has other rights.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    responses(
        (status = 200, body = Event, content_type = "text/event-stream"),
    )
)]
pub(crate) async fn read_events(
    State(shared): State<Shared>,
    caller: Caller,
    proof: Option<Extension<Proof>>,
) -> Result<Sse<impl Stream<Item = Result<Sent, Infallible>>>, Problem> {
    let place = Arc::clone(&shared.readers).try_acquire_owned().map_err(|_| {
        Problem::unavailable(format!("{MAX_EVENT_READERS} clients read events already; end one of them first"))
    })?;
    let events = shared.server.events().subscribe();
    let stream = unfold((events, place, caller, proof), |(mut events, place, caller, proof)| async move {
        let event = loop {
            match events.recv().await {
                Ok(event) if !caller.sees(event.target.as_deref()) => {}
                Ok(event) => break event,
                Err(RecvError::Lagged(count)) => break lost(count),
                Err(RecvError::Closed) => return None,
            }
        };
        if let Some(Extension(proof)) = &proof
            && !proof.holds().await
        {
            return None;
        }
        let sent = Sent::default().event(&event.kind).json_data(&event);
        // Texts and nothing else become JSON.
        Some((Ok(sent.unwrap_or_default()), (events, place, caller, proof)))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(ALIVE)))
}

/// The event for a reader that has missed others.
fn lost(count: u64) -> Event {
    let text = format!("{count} events were left out: this reader was more than {MAX_EVENTS_BEHIND} behind");
    Event { kind: "lost".into(), text, target: None, initiator: None }
}
