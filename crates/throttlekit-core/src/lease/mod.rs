//! Capacity lent in bulk.

mod sizing;

pub use sizing::{PredictiveSizer, Sizer, SizerOptions, SizingError, eoq_cost, eoq_optimum};
