//! Outbound calls of several processes to one provider account.

use crate::common::{self, builder};
use throttlekit_verify::outbound::examine_account;

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_an_account_on_postgres() {
    common::clear("tk_outbound_test").await;
    let connect = async || builder("tk_outbound_test").connections(1).connect().await.unwrap();
    let stores = [connect().await, connect().await, connect().await];
    examine_account(stores, "account").await;
}
