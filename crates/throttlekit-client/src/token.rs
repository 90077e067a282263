//! The bearer token of every call.

use std::path::{Path, PathBuf};

use throttlekit::internals::Mutex;
use tonic::metadata::{Ascii, MetadataValue};

/// A token and its source. One from a file is read again when the server rejects it: files are rotated.
pub(crate) struct Token {
    file: Option<PathBuf>,
    header: Mutex<MetadataValue<Ascii>>,
}

impl Token {
    pub(crate) fn given(token: &str) -> Result<Self, String> {
        Ok(Self { file: None, header: Mutex::new(header(token)?) })
    }

    pub(crate) fn from_file(path: &Path) -> Result<Self, String> {
        let header = header(&read(path)?)?;
        Ok(Self { file: Some(path.to_owned()), header: Mutex::new(header) })
    }

    pub(crate) fn header(&self) -> MetadataValue<Ascii> {
        self.header.lock().clone()
    }

    /// Loads the current content of the file. Returns whether it has changed.
    pub(crate) fn refused(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let Ok(header) = read(file).and_then(|token| header(&token)) else { return false };
        let mut known = self.header.lock();
        let is_new = *known != header;
        *known = header;
        is_new
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn header(token: &str) -> Result<MetadataValue<Ascii>, String> {
    let token = token.trim();
    if token.is_empty() {
        return Err("the token is empty".into());
    }
    let mut header: MetadataValue<Ascii> =
        format!("Bearer {token}").parse().map_err(|_| "expected printable ASCII".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}
