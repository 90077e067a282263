//! PostgreSQL behind PgBouncer, a connection per transaction: a crash, and a standby that is promoted with old rows.

use anyhow::{Context, Result};
use throttlekit_verify::postgres::{Pooler, Server};

use super::engine::Fault;

pub(super) struct Pooled {
    primary: Server,
    standby: Option<Server>,
    pooler: Pooler,
}

impl Pooled {
    pub(super) fn start() -> Self {
        let primary = Server::create();
        primary.start();
        let pooler = Pooler::start(&primary);
        Self { primary, standby: None, pooler }
    }

    pub(super) fn url(&self) -> String {
        self.pooler.url()
    }

    /// Creates a standby where the fault needs one.
    pub(super) fn prepare(&mut self, fault: Fault) -> Result<()> {
        if fault == Fault::Stall {
            let standby = self.primary.standby();
            self.primary.wait_for(&standby);
            self.standby = Some(standby);
        }
        Ok(())
    }

    pub(super) fn cut_off(&mut self) -> Result<()> {
        self.standby.as_ref().context("no standby")?.cut_off();
        Ok(())
    }

    pub(super) fn strike(&mut self, fault: Fault) -> Result<()> {
        if fault == Fault::Restart {
            self.primary.kill();
            self.primary.start();
            return Ok(());
        }
        let standby = self.standby.take().context("no standby")?;
        self.primary.stop("immediate");
        standby.promote();
        self.pooler.point_at(&standby);
        self.primary = standby;
        Ok(())
    }
}
