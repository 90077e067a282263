//! Reading files that an operator names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a regular file of at most `bytes_max` bytes.
///
/// Rejects pipes and devices before opening them: opening a pipe waits for a writer, and `/dev/zero` has no end.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, long) = (folder.path().join("pipe"), folder.path().join("long"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&long, "12345").unwrap();
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let error = read_regular(path, 5).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{}: {error}", path.display());
        }
        assert!(read_regular(&long, 4).unwrap_err().to_string().contains("longer than 4 bytes"));
        assert_eq!(read_regular(&long, 5).unwrap(), b"12345");
    }
}
