//! `cargo fuzz run sketch`: see `throttlekit_fuzz::sketch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    throttlekit_fuzz::sketch(data);
});
