//! The connections of one store, and calls over them.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::builder::PostgresStoreBuilder;
use crate::connect::Connector;
use crate::connections::{Connection, Connections, Held};
use crate::error::{Failure, cannot_write, was_undone};

/// A value and its type on the server.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of one store.
pub(crate) struct StoreConnections {
    /// Connections for calls.
    pub(crate) calls: Connections,
    /// The connection for checks and probes: separate from those of calls, so that these being stuck does not keep the
    /// store from noticing that the server works again.
    pub(crate) control: Connections,
    pub(crate) deadline: Duration,
    /// Set if a pooler routes each call to another session, so that nothing may be kept in one.
    pub(crate) pooled: bool,
}

/// A statement, for both ways of sending it.
#[derive(Clone)]
pub(crate) struct Statement(pub(crate) Arc<str>);

impl StoreConnections {
    pub(crate) fn new(connector: Connector, builder: &PostgresStoreBuilder) -> Self {
        let (connector, seeded) = (Arc::new(connector), builder.seeded);
        let background = &builder.background;
        let calls = Connections::new(builder.connections, connector.clone(), background.clone(), seeded);
        let control = Connections::new(1, connector, background.clone(), seeded);
        Self { calls, control, deadline: builder.line.deadline, pooled: builder.pooled }
    }

    /// Runs a statement that returns one row over the control connection.
    pub(crate) async fn control_row(
        &self,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Result<Row, Failure> {
        self.one_row(self.control.hold().await?, statement, params).await
    }

    /// Runs a statement that returns one row. A call that was rolled back because of a conflict is retried once.
    pub(crate) async fn one_row(
        &self,
        held: Held,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Result<Row, Failure> {
        let mut answer = self.send(held.connection(), statement, params).await;
        if answer.as_ref().is_err_and(was_undone) {
            answer = self.send(held.connection(), statement, params).await;
        }
        // Its address may lead to another server by now.
        if answer.as_ref().is_err_and(cannot_write) {
            held.close();
        } else {
            held.give_back();
        }
        answer.map_err(|error| Failure::by_server(&error, self.deadline))
    }

    /// Closes all connections without a call in progress.
    pub(crate) fn close_idle(&self) {
        self.calls.close_idle();
        self.control.close_idle();
    }

    /// Makes one round trip. Named statements are faster, and a pooler in transaction mode loses them.
    async fn send(
        &self,
        connection: &Connection,
        Statement(text): &Statement,
        params: &[Param<'_>],
    ) -> Result<Row, tokio_postgres::Error> {
        if self.pooled {
            let rows = connection.client().query_typed(text, params).await?;
            return Ok(rows.into_iter().next().expect("a select without a from has one row"));
        }
        let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = connection.prepare(text, &types).await?;
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        connection.client().query_one(&statement, &values).await
    }
}
