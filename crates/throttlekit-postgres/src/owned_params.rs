//! Parameters that outlive their call, since a background task sends them.

use std::error::Error;

use bytes::BytesMut;
use throttlekit::store::StoreError;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::store_connections::Param;

/// Encoded parameters.
pub(crate) struct OwnedParams(Vec<(Encoded, Type)>);

#[derive(Debug)]
struct Encoded {
    bytes: BytesMut,
    is_null: bool,
}

impl OwnedParams {
    pub(crate) fn of(params: &[Param<'_>]) -> Result<Self, StoreError> {
        let encode = |(value, kind): &Param<'_>| {
            let mut bytes = BytesMut::new();
            let null = value.to_sql_checked(kind, &mut bytes).map_err(StoreError::misconfigured)?;
            Ok((Encoded { bytes, is_null: matches!(null, IsNull::Yes) }, kind.clone()))
        };
        params.iter().map(encode).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        self.0.iter().map(|(value, kind)| (value as &(dyn ToSql + Sync), kind.clone())).collect()
    }
}

impl ToSql for Encoded {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.bytes);
        Ok(if self.is_null { IsNull::Yes } else { IsNull::No })
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
