//! `cargo fuzz run descriptors`: see `throttlekit_fuzz::descriptors`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    throttlekit_fuzz::descriptors(data);
});
