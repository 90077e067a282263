//! Small worlds, explored in full.
