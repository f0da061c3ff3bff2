//! An API server for tests: answers requests over plain HTTP with what a test gives it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A running server. It ends with the runtime of the test.
pub(crate) struct FakeApi {
    url: String,
    /// The requests: method, path with query, and body.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl FakeApi {
    /// Starts a server. `answer` gets the method and path, and returns a status and a body; `None` leaves the request open.
    pub(crate) async fn start(answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> FakeApi {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let api =
            FakeApi { url: format!("http://{}", listener.local_addr().expect("an address")), requests: Arc::default() };
        let (requests, answer) = (api.requests.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, requests.clone(), answer.clone()));
            }
        });
        api
    }

    /// Writes a kubeconfig for the server.
    pub(crate) fn write_kubeconfig(&self, file: &Path) {
        let text = format!(
            r#"{{ "clusters": [{{ "name": "a", "cluster": {{ "server": "{}" }} }}], "users": [{{ "name": "a", "user": {{}} }}],
                 "contexts": [{{ "name": "a", "context": {{ "cluster": "a", "user": "a" }} }}], "current-context": "a" }}"#,
            self.url
        );
        std::fs::write(file, text).expect("a file");
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
    answer: Arc<impl Fn(&str) -> Option<(u16, String)>>,
) -> Option<()> {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        let line = head.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned();
        requests.lock().expect("no panic").push(format!("{line} {body}"));
        match answer(&line) {
            Some((status, body)) => {
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
            }
            None => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await.ok()?;
                std::future::pending::<()>().await;
            }
        }
        text.clear();
    }
}
