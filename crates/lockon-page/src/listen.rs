//! Connections: how many are open at the same time, and how long a client may take.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum connections that wait for a request or an answer; a new one closes the oldest. Viewers are
/// limited separately.
const MOST_CONNECTIONS: usize = 256;

/// Time limit of a request's head, also of the next one on an open connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit of a connection.
const MOST_TIME: Duration = Duration::from_mins(10);

/// Wait after the system failed to give a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` until the page ends.
pub(super) async fn listen(listener: TcpListener, router: Router, mut over: watch::Receiver<bool>) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = over.wait_for(|is_over| *is_over) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // The client is gone, or too many files are open: both can pass.
            Err(error) => {
                tracing::debug!("page: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if open.len() >= MOST_CONNECTIONS {
            open.retain(|connection| !connection.is_finished());
        }
        if open.len() >= MOST_CONNECTIONS {
            open.pop_front().inspect(JoinHandle::abort);
        }
        // A late picture is worth nothing.
        let _ = stream.set_nodelay(true);
        open.push_back(tokio::spawn(serve(stream, router.clone())));
    }
}

/// Serves one connection until it is closed.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    match tokio::time::timeout(MOST_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("page: {error}"),
        Err(_) => tracing::debug!("page: a connection took too long"),
    }
}
