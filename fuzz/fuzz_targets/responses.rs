//! `cargo fuzz run responses`: see `throttlekit_fuzz::responses`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    throttlekit_fuzz::responses(data);
});
