//! The stream of a connection, which ends when its client does not take what it is sent, or sends more than a client
//! without a token may.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::Connection;
use crate::limits::{SEND_STEP_BYTES, SEND_TIMEOUT};

/// A stream with the bounds of its connection.
pub(super) struct Bounded<S> {
    stream: S,
    connection: Arc<Connection>,
    /// The bytes that may still come and go before the client has proven that it has a token.
    budget: usize,
    /// Runs while the stream does not take what is to be sent.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The bytes that the client has taken since.
    taken: usize,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>, budget: usize) -> Self {
        Self { stream, connection, budget, deadline: None, taken: 0 }
    }

    /// Counts bytes of a client that has proven nothing.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        if self.connection.is_proven() {
            return Ok(());
        }
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| io::Error::other("too many bytes without a token"))?;
        Ok(())
    }

    /// Passes the outcome of sending on: as long as it is pending, the time runs.
    fn in_time<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            return sent;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(SEND_TIMEOUT)));
        ready!(deadline.as_mut().poll(cx));
        let what = format!("the client has not taken {SEND_STEP_BYTES} bytes of an answer within {SEND_TIMEOUT:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)))
    }

    /// All has gone, or enough for more time.
    fn relax(&mut self) {
        (self.deadline, self.taken) = (None, 0);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        let read = into.filled().len() - before;
        Poll::Ready(self.count(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let sent = ready!(self.in_time(cx, sent))?;
        self.count(sent)?;
        self.taken += sent;
        if self.taken >= SEND_STEP_BYTES {
            self.relax();
        }
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.in_time(cx, flushed))?;
        self.relax();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.in_time(cx, ended)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::super::shares::Shares;
    use super::*;
    use crate::limits::MAX_STRANGER_BYTES;

    async fn stranger() -> Arc<Connection> {
        Arc::new(Shares::default().admit([192, 0, 2, 1].into(), String::new()).await.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_ended_and_a_slow_one_is_not() {
        let (mut client, server) = duplex(1000);
        let mut server = Bounded::new(server, Arc::new(Connection::trusted(String::new())), 0);
        let begun = Instant::now();
        let error = server.write_all(&[0; 2000]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, SEND_TIMEOUT));

        // Just fast enough: a step in each time.
        let (mut slow, server) = duplex(SEND_STEP_BYTES);
        let mut server = Bounded::new(server, Arc::new(Connection::trusted(String::new())), 0);
        let reader = tokio::spawn(async move {
            let mut step = vec![0; SEND_STEP_BYTES];
            for _ in 0..4 {
                tokio::time::sleep(SEND_TIMEOUT * 29 / 30).await;
                slow.read_exact(&mut step).await.unwrap();
            }
        });
        server.write_all(&vec![0; 4 * SEND_STEP_BYTES]).await.unwrap();
        reader.await.unwrap();
        client.read_exact(&mut [0; 1000]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_byte_by_byte_is_ended() {
        let (mut client, server) = duplex(1);
        let mut server = Bounded::new(server, Arc::new(Connection::trusted(String::new())), 0);
        let reader = tokio::spawn(async move {
            let mut taken = 0;
            while client.read(&mut [0]).await.unwrap() > 0 {
                taken += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            taken
        });
        let begun = Instant::now();
        server.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(begun.elapsed(), SEND_TIMEOUT);
        drop(server);
        assert!(reader.await.unwrap() < 1000);
    }

    #[tokio::test]
    async fn a_client_without_a_token_sends_and_gets_no_more_than_the_limit() {
        let (mut client, server) = duplex(2 * MAX_STRANGER_BYTES);
        let mut server = Bounded::new(server, stranger().await, MAX_STRANGER_BYTES);
        server.write_all(&vec![0; MAX_STRANGER_BYTES / 2]).await.unwrap();
        client.write_all(&vec![0; MAX_STRANGER_BYTES]).await.unwrap();
        let mut read = vec![0; MAX_STRANGER_BYTES];
        let error = server.read_exact(&mut read).await.unwrap_err();
        assert!(error.to_string().contains("without a token"), "{error}");

        // As at the port of the metrics.
        let (mut client, server) = duplex(2 * MAX_STRANGER_BYTES);
        let mut server = Bounded::new(server, stranger().await, usize::MAX);
        server.write_all(&vec![0; MAX_STRANGER_BYTES + 1]).await.unwrap();
        client.read_exact(&mut vec![0; MAX_STRANGER_BYTES + 1]).await.unwrap();

        let (mut client, server) = duplex(2 * MAX_STRANGER_BYTES);
        let proven = stranger().await;
        proven.prove().unwrap();
        let mut server = Bounded::new(server, proven, MAX_STRANGER_BYTES);
        client.write_all(&vec![0; MAX_STRANGER_BYTES + 1]).await.unwrap();
        server.read_exact(&mut vec![0; MAX_STRANGER_BYTES + 1]).await.unwrap();
    }
}
