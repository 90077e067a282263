//! Connections, and one call over one of them.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool};
use throttlekit::store::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::error::{Failure, cannot_write, from_pool, was_undone};

/// A value and the type in which the server takes it.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of one store.
pub(crate) struct Link {
    pub(crate) pool: Pool,
    pub(crate) deadline: Duration,
    /// Whether a pooler hands each call to another session, so that nothing may be kept in one.
    pub(crate) pooled: bool,
}

/// One statement of ours, written for both ways of sending it.
pub(crate) struct Statement(pub(crate) Arc<str>);

impl Link {
    /// A connection that is ours until it is given back.
    pub(crate) async fn hold(&self) -> Result<Held, StoreError> {
        let object = self.pool.get().await.map_err(|error| from_pool(&error, self.deadline))?;
        Ok(Held(Some(object)))
    }

    /// Runs a statement that answers with one row. What the server undid is tried once more.
    pub(crate) async fn one_row(&self, statement: &Statement, params: &[Param<'_>]) -> Result<Row, Failure> {
        let held = self.hold().await?;
        let mut answer = self.send(held.client(), statement, params).await;
        if answer.as_ref().is_err_and(was_undone) {
            answer = self.send(held.client(), statement, params).await;
        }
        // Its address may lead to another server by now.
        if !answer.as_ref().is_err_and(cannot_write) {
            held.give_back();
        }
        answer.map_err(|error| Failure::by_server(&error, self.deadline))
    }

    /// Closes all connections that no call is under way on.
    pub(crate) fn forget_all(&self) {
        self.pool.retain(|_, _| false);
    }

    /// One round trip. Named statements are faster, and a pooler in transaction mode loses them.
    async fn send(
        &self,
        client: &ClientWrapper,
        Statement(text): &Statement,
        params: &[Param<'_>],
    ) -> Result<Row, tokio_postgres::Error> {
        if self.pooled {
            let rows = client.query_typed(text, params).await?;
            return Ok(rows.into_iter().next().expect("a select without a from has one row"));
        }
        let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = client.prepare_typed_cached(text, &types).await?;
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        client.query_one(&statement, &values).await
    }
}

/// A connection while a call is under way on it.
///
/// Dropped before it is given back, the call was given up and its reply is still to come. Then the connection is
/// closed rather than put back, where the next call would wait behind that reply.
pub(crate) struct Held(Option<Object>);

impl Held {
    pub(crate) fn client(&self) -> &ClientWrapper {
        self.0.as_ref().expect("held until it is given back")
    }

    pub(crate) fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
