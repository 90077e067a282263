//! Validation of a server's options without starting it.

use crate::engine::Engine;
use crate::reload::{Loaded, Reloader};
use crate::server::ServerOptions;
use crate::server_error::ServerError;
use crate::telemetry::Traces;

/// Result of a check that found no error.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    /// Warnings about the options and the policy file that the server logs when it starts.
    pub warnings: Vec<String>,
    /// Reason why the store cannot be used now, if it cannot. A server starts nevertheless.
    pub store_error: Option<String>,
}

impl ServerOptions {
    /// Validates everything that [`Server::start`](crate::Server::start) validates before it listens. Opens no listener,
    /// writes nothing to the store and sends nothing to the collector. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The error that a start would return. An address that another process uses is not found.
    pub async fn check(&self) -> Result<Checked, ServerError> {
        self.check_addresses()?;
        let loaded = Loaded::read(&self.policies)?;
        Reloader::new(self.policies.clone(), &loaded, self.secrets.clone())?;
        Traces::check(self.collector())?;
        let mut warnings = loaded.warnings.clone();
        warnings.extend(self.engine.warnings(&loaded.file));
        Engine::validate(&self.engine, loaded.file)?;
        let store_error = self.engine.backend.probe().await.err().map(|error| error.to_string());
        Ok(Checked { warnings, store_error })
    }

    /// Fails if two listeners have one address, or if a socket would be open and nobody would accept its connections.
    pub(crate) fn check_addresses(&self) -> Result<(), ServerError> {
        let listeners = [
            (Some(self.grpc), "--listen"),
            (self.http, "--http"),
            (self.resp, "--resp"),
            (self.metrics, "--metrics"),
        ];
        let used: Vec<_> =
            listeners.iter().filter_map(|(address, option)| Some(((*address)?, *option))).collect();
        for (place, (address, option)) in used.iter().enumerate() {
            // Each listener at port 0 gets a free port.
            if address.port() != 0 && used[..place].iter().any(|(earlier, _)| earlier == address) {
                let error = std::io::ErrorKind::AddrInUse.into();
                return Err(ServerError::Listen { address: *address, option, error });
            }
        }
        for socket in &self.sockets {
            let address = socket.local_addr().map_err(ServerError::socket)?;
            if used.iter().all(|(used, _)| *used != address) {
                return Err(ServerError::socket(format_args!("{address} is the address of no listener")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;
    use crate::engine::Backend;

    const POLICIES: &str = "version: 1\npolicies: {api: {rate: {limit: 2, per: 1d}}}\n";

    fn options() -> (ServerOptions, TempDir) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("policies.yaml");
        std::fs::write(&path, POLICIES).unwrap();
        (ServerOptions::new(path, Backend::memory()), folder)
    }

    #[tokio::test]
    async fn valid_options_have_no_warnings() {
        let (options, _folder) = options();
        let Checked { warnings, store_error } = options.check().await.unwrap();
        assert_eq!((warnings, store_error), (Vec::new(), None));
    }

    #[tokio::test]
    async fn two_listeners_cannot_have_one_address() {
        let (mut options, _folder) = options();
        (options.grpc, options.metrics) =
            ("127.0.0.1:50051".parse().unwrap(), "127.0.0.1:50051".parse().ok());
        let refused = options.check().await.unwrap_err().to_string();
        assert!(refused.contains("127.0.0.1:50051") && refused.contains("--metrics"), "{refused}");
        (options.grpc, options.metrics) = ("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().ok());
        assert!(options.check().await.is_ok(), "each gets a free port");
    }

    #[tokio::test]
    async fn passed_sockets_need_a_listener() {
        let (mut options, _folder) = options();
        options.sockets = vec![Arc::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap())];
        let refused = options.check().await.unwrap_err().to_string();
        assert!(refused.contains("is the address of no listener"), "{refused}");
        options.http = options.sockets[0].local_addr().ok();
        assert!(options.check().await.is_ok());
    }

    #[cfg(feature = "otlp")]
    #[tokio::test]
    async fn the_address_of_the_collector_is_validated() {
        let (mut options, _folder) = options();
        for (address, is_valid) in
            [("http://localhost:4317", true), ("https://localhost:4317", false), ("http://not a host", false)]
        {
            options.otlp = Some(address.into());
            assert_eq!(options.check().await.is_ok(), is_valid, "{address}");
        }
    }
}
