//! Forwards one connection through the proxy.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::{Fault, Script, Treatment, message};

/// For each of the server's next answers, whether the client sees it or it belongs to an injected statement.
type Answers = Mutex<VecDeque<Visible>>;
type Visible = bool;

enum End {
    Closed,
    BlackHole,
}

/// Forwards both directions until either end closes.
pub(super) async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    script: Arc<Mutex<Script>>,
    treatment: watch::Receiver<Treatment>,
) {
    let (mut from_client, to_client) = client.split();
    let (mut from_server, to_server) = server.split();
    // The first answer is the one to the startup message.
    let answers = Answers::new([true].into());
    let (inject, injected) = mpsc::unbounded_channel();
    script.lock().unwrap().inject = Some(inject);
    let (refuse, refusals) = mpsc::unbounded_channel();
    let end = tokio::select! {
        biased;
        end = ends(treatment.clone()) => end,
        _ = requests(&mut from_client, to_server, &script, &answers, injected, refuse, treatment.clone()) => End::Closed,
        _ = replies(&mut from_server, to_client, &answers, refusals, treatment) => End::Closed,
    };
    if let End::BlackHole = end {
        // Reads on, so that either end's writes look delivered, and never closes.
        tokio::join!(swallow(&mut from_client), swallow(&mut from_server));
        std::future::pending::<()>().await;
    }
}

/// Returns when this connection is cut or becomes a black hole.
async fn ends(mut treatment: watch::Receiver<Treatment>) -> End {
    let (cuts, black_holes) = {
        let now = treatment.borrow();
        (now.cuts, now.black_holes)
    };
    let changed = treatment.wait_for(|now| now.cuts > cuts || now.black_holes > black_holes);
    let end = changed
        .await
        .map(|now| if now.cuts > cuts { End::Closed } else { End::BlackHole });
    match end {
        Ok(end) => end,
        // The proxy is gone, and nothing changes any more.
        Err(_) => std::future::pending().await,
    }
}

async fn swallow(from: &mut ReadHalf<'_>) {
    let mut bytes = vec![0; 16 * 1024];
    while from.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
}

/// Waits while messages are held back.
async fn hold(treatment: &mut watch::Receiver<Treatment>) {
    let delay = treatment.borrow().delay;
    if !delay.is_zero() {
        sleep(delay).await;
    }
    // An error means that the proxy is gone.
    let _ = treatment.wait_for(|treatment| !treatment.frozen).await;
}

async fn requests(
    client: &mut ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    script: &Mutex<Script>,
    answers: &Answers,
    mut injected: mpsc::UnboundedReceiver<String>,
    refuse: mpsc::UnboundedSender<Vec<u8>>,
    mut treatment: watch::Receiver<Treatment>,
) -> io::Result<()> {
    let startup = message::startup(client).await?;
    hold(&mut treatment).await;
    server.write_all(&startup).await?;
    loop {
        let mut kind = [0];
        tokio::select! {
            // Nothing is injected any more once a later connection is made.
            Some(sql) = injected.recv() => {
                answers.lock().unwrap().push_back(false);
                server.write_all(&message::query(&sql)).await?;
                continue;
            }
            read = client.read_exact(&mut kind) => read?,
        };
        let request = message::after_kind(kind[0], client).await?;
        hold(&mut treatment).await;
        let fault = match kind[0] {
            b'Q' => script.lock().unwrap().fault(message::sql(&request)),
            _ => None,
        };
        match fault {
            Some(Fault::Refuse(code, text)) => {
                let _ = refuse.send(message::refusal(code, text));
            }
            Some(Fault::Cut) => return Ok(()),
            None => {
                // What a ReadyForQuery answers: Query, Sync and FunctionCall.
                if let b'Q' | b'S' | b'F' = kind[0] {
                    answers.lock().unwrap().push_back(true);
                }
                server.write_all(&request).await?;
            }
        }
    }
}

async fn replies(
    server: &mut ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    answers: &Answers,
    mut refusals: mpsc::UnboundedReceiver<Vec<u8>>,
    mut treatment: watch::Receiver<Treatment>,
) -> io::Result<()> {
    loop {
        let mut kind = [0];
        tokio::select! {
            Some(refusal) = refusals.recv() => {
                client.write_all(&refusal).await?;
                continue;
            }
            read = server.read_exact(&mut kind) => read?,
        };
        let reply = message::after_kind(kind[0], server).await?;
        hold(&mut treatment).await;
        // Notifications, notices and parameters belong to no answer.
        let visible = matches!(kind[0], b'A' | b'N' | b'S') || {
            let mut answers = answers.lock().unwrap();
            let answer = match kind[0] {
                b'Z' => answers.pop_front(),
                _ => answers.front().copied(),
            };
            answer.unwrap_or(true)
        };
        if visible {
            client.write_all(&reply).await?;
        }
    }
}
