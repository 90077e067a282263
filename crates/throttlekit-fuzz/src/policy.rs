//! An untrusted policy file, or a file of another service.

use throttlekit_server::policy::{self, BYTES_MAX, ERRORS_MAX, Imported, PolicyError, PolicyFile, Severity};

/// The maximum size of the report about one file.
const TOLD_BYTES_MAX: usize = 1 << 20;

/// Reads bytes as a policy file and as one to import. A file that loads can be explained, and loads again
/// from its serialized form.
pub fn policy(data: &[u8]) -> bool {
    let text = match policy::text(data) {
        Ok(text) => text,
        Err(error) => {
            judge(&error);
            return false;
        }
    };
    let loaded = policy::load(text);
    let loads = loaded.is_ok();
    match loaded {
        Ok((file, warnings)) => {
            assert!(warnings.iter().all(|finding| finding.severity == Severity::Warning));
            let told = policy::explain(&file);
            assert!(
                file.policies.keys().all(|name| told.contains(name.as_str())),
                "a policy is not explained"
            );
            reload(&file);
        }
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= ERRORS_MAX + 1, "{} errors", errors.len());
            errors.iter().for_each(judge);
        }
    }
    // Each is tried, whether or not another one reads it.
    let imports = [policy::import_envoy(text), policy::import_limiters(text)].map(|read| imports(&read));
    loads || imports.contains(&true)
}

fn imports(imported: &Result<Imported, Vec<PolicyError>>) -> bool {
    match imported {
        Ok(imported) => reload(&imported.file),
        Err(errors) => {
            assert!(!errors.is_empty() && errors.len() <= ERRORS_MAX + 1, "{} errors", errors.len());
            errors.iter().for_each(judge);
        }
    }
    imported.is_ok()
}

fn judge(error: &PolicyError) {
    let told = error.to_string();
    assert!(!told.is_empty() && told.len() < TOLD_BYTES_MAX, "{} bytes about an error", told.len());
}

/// Checks that the serialized form of a file is that file again, in both notations.
fn reload(file: &PolicyFile) {
    let yaml = serde_saphyr::to_string(file).expect("a file can be written as YAML");
    let json = serde_json::to_string(file).expect("a file can be written as JSON");
    for text in [yaml, json].iter().filter(|text| text.len() <= BYTES_MAX) {
        match policy::load(text) {
            Ok((again, _)) => assert_eq!(&again, file, "it reads differently: {text}"),
            Err(errors) => panic!("it does not read again: {}\n{text}", errors[0]),
        }
    }
}
