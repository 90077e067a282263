//! The `throttlekit` command.

fn main() {}
