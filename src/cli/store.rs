//! The store that commands open.

use crate::config::Config;
use crate::store::{Store, StoreAddress};

use super::{CliError, Context};

/// The store of this user: `RALPH_DB_URL`, else a file of SQLite.
pub(super) async fn open_store(context: &Context, config: &Config) -> Result<Store, CliError> {
    let surroundings = context.surroundings();
    let address = match config.database_url() {
        Some(url) => StoreAddress::parse(&url, surroundings.dir())?,
        None => StoreAddress::file(surroundings.data_dir()?.join("ralph.db")),
    };
    Ok(Store::open(&address).await?)
}
