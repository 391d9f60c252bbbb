//! Servers and their connections: how many are open at the same time, and how long a client may take.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use lockon_core::error::{Error, Result};
use lockon_run::request::ListenAddress;

/// Maximum connections that wait for a request or an answer; a new one closes the oldest. Viewers are
/// limited separately.
const MOST_CONNECTIONS: usize = 256;

/// Time limit of a request's head, also of the next one on an open connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit of a connection.
const MOST_TIME: Duration = Duration::from_mins(10);

/// Wait after the system failed to give a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A server on threads of its own, until it is dropped.
pub(super) struct Server {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// Set once it ends.
    over: watch::Sender<bool>,
}

impl Server {
    /// Serves the router that `make` returns for the socket's address and the end of the server; also returns
    /// the other value that `make` returns. `name` is the name of the threads; up to `blocking` of them may
    /// wait.
    ///
    /// # Errors
    /// `Listen` if the address is in use or is not an address of this machine, if the system gives no
    /// threads, or if `make` fails.
    pub(super) fn start<T>(
        address: &ListenAddress,
        name: &str,
        blocking: usize,
        make: impl FnOnce(SocketAddr, watch::Receiver<bool>) -> io::Result<(Router, T)>,
    ) -> Result<(Self, T)> {
        let failed = |cause| Error::Listen { address: address.to_string(), cause };
        let listener = address.listen()?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let (over, is_over) = watch::channel(false);
        let (router, made) = make(at, is_over.clone()).map_err(failed)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(blocking)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(failed)?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        runtime.spawn(listen(listener, router, is_over));
        Ok((Self { runtime: Some(runtime), over }, made))
    }

    /// Ends the server, and waits at most so long for its last work.
    pub(super) fn end_within(&self, limit: Duration, ended: impl Future) {
        self.over.send_replace(true);
        if let Some(runtime) = &self.runtime {
            let _ = runtime.block_on(async { tokio::time::timeout(limit, ended).await });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Serves `router` until the server ends.
async fn listen(listener: TcpListener, router: Router, mut over: watch::Receiver<bool>) {
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
        // A late picture has no value.
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
