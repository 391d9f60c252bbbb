//! Connections: how many at a time, and for how long somebody may take to say what he wants.

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

/// Most connections that wait for a request or an answer; the oldest is closed for one more. Those of
/// browsers that look are counted elsewhere.
const MOST_CONNECTIONS: usize = 256;

/// A request's head takes so long at most, also the next one's on a connection that stays open.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer that is not taken for so long is given up, with its connection.
const MOST_TIME: Duration = Duration::from_mins(10);

/// How long to wait after the system has given no connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers by `router` until the page is over.
pub(super) async fn listen(listener: TcpListener, router: Router, mut over: watch::Receiver<bool>) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = over.wait_for(|is_over| *is_over) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // Gone again already, or too many files are open: that may pass.
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
        // A picture is worth nothing later.
        let _ = stream.set_nodelay(true);
        open.push_back(tokio::spawn(serve(stream, router.clone())));
    }
}

/// Answers what comes over a connection until it is closed.
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
