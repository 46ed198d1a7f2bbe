//! The thread of the link.
//!
//! It has a runtime by itself. Whatever comes from the coordinator is done by several tasks that wait for
//! each other, and where threads share these one wakes another for nothing: a heartbeat would wake an idle
//! host twice (R6.12).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::sys;

/// So long the connection has to say that it ends.
const GOODBYE: Duration = Duration::from_millis(20);

/// Is over when the link has ended. Who drops it ends the link wherever it stands.
#[derive(Debug)]
pub struct LinkThread {
    ended: oneshot::Receiver<()>,
    _goes_on: oneshot::Sender<()>,
}

impl LinkThread {
    /// # Errors
    /// An I/O error of the operating system, when it gives no thread or nothing to wait with.
    pub(super) fn start(link: impl Future<Output = ()> + Send + 'static) -> io::Result<Self> {
        let (goes_on, dropped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (say_begun, begun) = std::sync::mpsc::channel();
        let run = move || {
            let built = tokio::runtime::Builder::new_current_thread()
                .on_thread_park(sys::sleeps)
                .thread_keep_alive(sys::THREADS_STAY)
                .enable_all()
                .build();
            let runtime = match built {
                Ok(runtime) => runtime,
                Err(error) => return drop(say_begun.send(Err(error))),
            };
            let _ = say_begun.send(Ok(()));
            runtime.block_on(async {
                tokio::select! {
                    () = link => {}
                    _ = dropped => return,
                }
                // Its connection says that it ends.
                tokio::time::sleep(GOODBYE).await;
            });
            // It does not wait for a name that is being looked up.
            runtime.shutdown_background();
            drop(end);
        };
        std::thread::Builder::new().name("link".into()).spawn(run)?;
        begun.recv().map_err(io::Error::other)??;
        Ok(Self { ended, _goes_on: goes_on })
    }
}

impl Future for LinkThread {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.ended).poll(context).map(drop)
    }
}
