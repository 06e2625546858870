//! The store itself: opening it, emptying it, asking it.

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use portcullis_core::{LogId, failpoint};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::change::Applied;
use crate::error::StoreError;
use crate::project;
use crate::rows::{
    AdminStateRow, AgentKeyRow, ApprovalRow, CheckpointRow, DeclarationRow, OperatorRow, PolicyRow,
    ServerRow, SurfaceRow,
};

/// Each brings the schema from its index to the next and sets `user_version` itself.
const MIGRATIONS: [&str; 6] = [
    include_str!("../migrations/0001_state.sql"),
    include_str!("../migrations/0002_agent_keys.sql"),
    include_str!("../migrations/0003_policies.sql"),
    include_str!("../migrations/0004_operators.sql"),
    include_str!("../migrations/0005_admin_state.sql"),
    include_str!("../migrations/0006_stops.sql"),
];

/// State, following one audit log.
#[derive(Debug, Clone)]
pub struct Store {
    pool: SqlitePool,
}

impl Store {
    /// Opens the state in the file `path`, creating it, private, if it does not exist.
    pub async fn open(path: &Path) -> Result<Store, StoreError> {
        make_private(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            // The log is durable; what a power cut takes from here is applied again.
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(5));
        // One connection: one process, one writer, few readers, and no order but that of the calls.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        let store = Store { pool };
        store.migrate().await?;
        Ok(store)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let (version,): (i64,) = sqlx::query_as("PRAGMA user_version").fetch_one(&self.pool).await?;
        let done = usize::try_from(version).ok().filter(|done| *done <= MIGRATIONS.len());
        let done = done.ok_or(StoreError::Damaged { what: "made by a newer version" })?;
        for migration in &MIGRATIONS[done..] {
            let mut transaction = self.pool.begin().await?;
            sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
            transaction.commit().await?;
        }
        Ok(())
    }

    /// The last applied record: its log and number. `None`: nothing is applied yet.
    pub async fn position(&self) -> Result<Option<(LogId, u64)>, StoreError> {
        let position = project::position(&mut self.pool.begin().await?).await?;
        position
            .map(|(log, seq)| Ok((log.parse().map_err(|_| StoreError::Damaged { what: "position" })?, seq)))
            .transpose()
    }

    /// Applies `batch`, all of it or nothing, and moves the position to its last record in the same transaction.
    /// Records at or before the position are skipped; records of another log are refused.
    pub async fn apply(&self, batch: &[Applied<'_>]) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut transaction = self.pool.begin().await?;
        project::apply(&mut transaction, batch).await?;
        failpoint::pass("store.before_commit");
        transaction.commit().await?;
        failpoint::pass("store.after_commit");
        Ok(())
    }

    /// Empties the state, so that it can be rebuilt from the log's first record.
    pub async fn reset(&self) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::raw_sql(
            "DELETE FROM position; DELETE FROM server; DELETE FROM declaration; DELETE FROM approval; \
             DELETE FROM policy_activation; DELETE FROM agent_key; DELETE FROM operator; DELETE FROM admin_state; \
             DELETE FROM checkpoint; DELETE FROM surface;",
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// All servers by name, removed ones too.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM server ORDER BY identity").fetch_all(&self.pool).await?)
    }

    /// All declarations in the order of their acceptance.
    pub async fn declarations(&self) -> Result<Vec<DeclarationRow>, StoreError> {
        let query = sqlx::query_as("SELECT * FROM declaration ORDER BY seq, server, version");
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// The approvals in `state`, or all, in the order they were requested.
    pub async fn approvals(&self, state: Option<&str>) -> Result<Vec<ApprovalRow>, StoreError> {
        let query =
            sqlx::query_as("SELECT * FROM approval WHERE ?1 IS NULL OR state = ?1 ORDER BY seq, approval_id");
        Ok(query.bind(state.map(str::to_owned)).fetch_all(&self.pool).await?)
    }

    /// Every policy that was activated, the one in force last.
    pub async fn policies(&self) -> Result<Vec<PolicyRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM policy_activation ORDER BY seq").fetch_all(&self.pool).await?)
    }

    /// The keys of agents in force, by name.
    pub async fn agent_keys(&self) -> Result<Vec<AgentKeyRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM agent_key ORDER BY agent").fetch_all(&self.pool).await?)
    }

    /// The enrolled operators, by name.
    pub async fn operators(&self) -> Result<Vec<OperatorRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM operator ORDER BY name").fetch_all(&self.pool).await?)
    }

    /// What operators set besides, by kind and id.
    pub async fn admin_state(&self) -> Result<Vec<AdminStateRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM admin_state ORDER BY kind, id").fetch_all(&self.pool).await?)
    }

    /// What stops sessions, by session.
    pub async fn checkpoints(&self) -> Result<Vec<CheckpointRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM checkpoint ORDER BY session").fetch_all(&self.pool).await?)
    }

    /// What servers listed when they were last found to be something else than accepted, by server.
    pub async fn surfaces(&self) -> Result<Vec<SurfaceRow>, StoreError> {
        Ok(sqlx::query_as("SELECT * FROM surface ORDER BY server").fetch_all(&self.pool).await?)
    }

    /// Lets go of the file. Dropping the last handle does it too, but later.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// SQLite gives its side files the mode of the main one, so it is enough that this one is private.
pub(crate) fn make_private(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Io { path: path.into(), source };
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
    }
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & !0o600 != 0 {
        return Err(StoreError::Permissions { path: path.into(), mode });
    }
    Ok(())
}
