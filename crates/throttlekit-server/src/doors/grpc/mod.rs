//! Our own wire, `throttlekit.v1`.

mod monitor;

pub use monitor::MonitorDoor;
