//! A fake Sentinel: reports at once and to every client the configured primary.

use std::sync::Arc;

use anyhow::Result;
use throttlekit::internals::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone)]
pub(crate) struct Signpost {
    pub(crate) port: u16,
    primary: Arc<Mutex<String>>,
}

impl Signpost {
    /// Creates one that points at `host:port`.
    pub(crate) async fn to(primary: String) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let post = Self { port: listener.local_addr()?.port(), primary: Arc::new(Mutex::new(primary)) };
        let mine = post.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let post = mine.clone();
                tokio::spawn(async move { post.answer(stream).await });
            }
        });
        Ok(post)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn point_at(&self, primary: String) {
        *self.primary.lock() = primary;
    }

    /// Every command is an array, `*count` and so on; commands come whole, as they are small.
    async fn answer(&self, mut stream: TcpStream) {
        let mut bytes = [0; 4_096];
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            let text = String::from_utf8_lossy(&bytes[..read]);
            let replies: String = text.split('*').skip(1).map(|command| self.reply(command)).collect();
            if stream.write_all(replies.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn reply(&self, command: &str) -> String {
        if !command.contains("GET-MASTER-ADDR-BY-NAME") {
            return "+OK\r\n".into();
        }
        let primary = self.primary.lock().clone();
        let (host, port) = primary.split_once(':').unwrap_or_default();
        format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len())
    }
}
