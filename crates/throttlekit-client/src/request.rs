//! A call as the wire carries it.

use throttlekit::{Call, StoreError};
use throttlekit_proto::v1::CostHint;

/// An owned copy of a [`Call`] whose keys and numbers the wire can carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) others: Vec<String>,
    /// At least 1.
    pub(crate) cost: i64,
    /// At least 1.
    pub(crate) value: i64,
    /// Expected time that the work holds its slot; 0 if unknown.
    pub(crate) hold_ms: i64,
    /// Priority among those that wait.
    pub(crate) priority: u8,
    /// Set if the server is to reserve what it has learned, instead of the cost.
    pub(crate) hint: Option<CostHint>,
}

impl Request {
    /// Converts a call. Its costs for single limits and its weight have no place on the wire.
    pub(crate) fn of(call: &Call<'_>) -> Result<Self, StoreError> {
        let bid = call.bid();
        Ok(Self {
            key: text(call.key())?,
            others: (1..call.key_count()).map(|index| text(call.key_at(index))).collect::<Result<_, _>>()?,
            cost: cost(call.units())?,
            value: value(bid.value)?,
            hold_ms: bid.hold.map_or(0, |seconds| (seconds * 1_000.0).ceil() as i64).max(0),
            priority: u8::try_from(call.of_priority().level()).unwrap_or(u8::MAX),
            hint: None,
        })
    }

    /// Returns the request of this cost by one key.
    pub(crate) fn by(key: String, units: u64) -> Result<Self, StoreError> {
        let (others, hint) = (Vec::new(), None);
        Ok(Self { key, others, cost: cost(units)?, value: 1, hold_ms: 0, priority: 0, hint })
    }

    /// Returns the same with this cost.
    pub(crate) fn with_cost(&self, units: u64) -> Result<Self, StoreError> {
        Ok(Self { cost: cost(units)?, ..self.clone() })
    }

    /// Returns the cost.
    pub(crate) fn units(&self) -> u64 {
        self.cost.unsigned_abs()
    }

    /// Returns the call by its first key.
    pub(crate) fn call(&self) -> Call<'_> {
        Call::by(&self.key).cost(self.units())
    }
}

fn text(key: &[u8]) -> Result<String, StoreError> {
    let text =
        str::from_utf8(key).map_err(|_| StoreError::rejected("invalid key: not UTF-8; encode it as text"));
    text.map(str::to_owned)
}

/// Converts a cost. On the wire 0 means 1.
fn cost(cost: u64) -> Result<i64, StoreError> {
    match i64::try_from(cost) {
        Ok(0) => Err(StoreError::rejected("invalid cost 0: use `peek` instead")),
        Ok(cost) => Ok(cost),
        Err(_) => {
            Err(StoreError::rejected(format_args!("invalid cost {cost}: expected at most {}", i64::MAX)))
        }
    }
}

/// Converts a value, rounded down. On the wire 0 means 1.
fn value(value: f64) -> Result<i64, StoreError> {
    if value >= 1.0 {
        return Ok(value as i64);
    }
    Err(StoreError::rejected(format_args!("invalid value {value}: expected at least 1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_carried_with_its_keys_cost_value_hold_time_and_priority() {
        let call = Call::by("ada").and(&["acme", "gpt"]).cost(1_200).value(3.7).hold(0.25).priority(2);
        let others = vec!["acme".to_owned(), "gpt".to_owned()];
        let expected = Request {
            key: "ada".into(),
            others,
            cost: 1_200,
            value: 3,
            hold_ms: 250,
            priority: 2,
            hint: None,
        };
        assert_eq!(Request::of(&call), Ok(expected));
        let plain = Request::of(&Call::by("ada")).unwrap();
        assert_eq!((plain.cost, plain.value, plain.hold_ms), (1, 1, 0));
    }

    #[test]
    fn numbers_that_the_wire_reads_otherwise_are_rejected() {
        let calls = [
            Call::by("k").cost(0),
            Call::by("k").cost(u64::MAX),
            Call::by("k").value(0.5),
            Call::by("k").value(f64::NAN),
            Call::by(&[0xff_u8]),
        ];
        for call in calls {
            assert!(matches!(Request::of(&call), Err(StoreError::Rejected(_))), "{call:?}");
        }
    }
}
