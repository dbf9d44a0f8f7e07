//! Calls of gRPC on threads that may wait: the client of the API and the programs of the node are blocking.

use tonic::{Response, Status};

/// Runs a call on a thread that may wait, and writes its failure to the log.
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    call: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<Response<T>, Status> {
    let done = tokio::task::spawn_blocking(call).await;
    let done = done.unwrap_or_else(|error| {
        Err(Status::internal(format!("{name} has failed: {error}; this is a mistake in the driver")))
    });
    match &done {
        Ok(_) => tracing::debug!(name, "done"),
        Err(status) => tracing::warn!(name, code = ?status.code(), "{}", status.message()),
    }
    done.map(Response::new)
}

/// Implements a service by methods of the same names, which wait. Requests hold secrets, so no log has one.
macro_rules! rpcs {
    (impl $service:ident for $of:ident { $($call:ident: $request:ty => $response:ty;)+ }) => {
        #[tonic::async_trait]
        impl $service for $of {
            $(
                async fn $call(
                    &self,
                    request: tonic::Request<$request>,
                ) -> Result<tonic::Response<$response>, tonic::Status> {
                    let inner = std::sync::Arc::clone(&self.0);
                    $crate::rpcs::run(stringify!($call), move || inner.$call(&request.into_inner())).await
                }
            )+
        }
    };
}
pub(crate) use rpcs;
