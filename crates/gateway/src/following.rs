//! Keeping a server's subscriptions: one for all who follow a resource, made again after every reconnect.
//!
//! While somebody follows a resource, its server is connected without being called. What comes back after a failure is
//! looked at first, as for a call (GOV-501); only then is it asked to say when resources change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use portcullis_core::ServerIdentity;
use portcullis_governance::registry::ToolEntry;
use portcullis_upstream::{Following, Inbox, Phase, UpstreamError};
use tokio::sync::watch;

use crate::upstreams::{Caller, Line, NotUsable, Upstream};
use crate::world::WorldCell;

/// How often it is looked whether the subscriptions still stand, and how seldom at a server that fails.
const LOOK: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(30);

impl Upstream {
    /// Follows a resource for one client, from when the server agreed to it.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        world: &Arc<WorldCell>,
        (entry, caller): (&ToolEntry, Caller<'_>),
        (uri, known_as): (&str, &str),
        inbox: &Arc<Inbox>,
    ) -> Result<Following, NotUsable> {
        let line = self.line(&entry.server, &entry.tool, caller)?;
        let following = line.connection.followed().follow(uri, known_as, inbox);
        let untold = self.lasting(&entry.server, &line).await?.keep_up().await?;
        if let Some((_, error)) = untold.into_iter().find(|(refused, _)| refused == uri) {
            return Err(error.into());
        }
        self.keep_following(world, &line);
        Ok(following)
    }

    fn keep_following(self: &Arc<Self>, world: &Arc<WorldCell>, line: &Arc<Line>) {
        line.keeper.get_or_init(|| {
            let changes = line.connection.followed().changes();
            let server = self.server().clone();
            // It must not keep alive what it watches.
            let kept = (Arc::downgrade(self), Arc::downgrade(line));
            drop(tokio::spawn(keep(kept, Arc::downgrade(world), server, changes)));
        });
    }

    /// Whether the server has been asked for exactly what is wanted.
    async fn keep_up(
        &self,
        line: &Arc<Line>,
        world: &WorldCell,
        server: &ServerIdentity,
    ) -> Result<(), NotUsable> {
        let world = world.load();
        let Some(entry) = world.registry().server(server).filter(|entry| entry.is_active()) else {
            return Ok(());
        };
        // A server that was restarted meanwhile and that nobody needs is not asked for nothing.
        let idle = line.connection.status().phase != Phase::Ready;
        if idle && line.connection.followed().wanted().is_empty() {
            return Ok(());
        }
        let untold = self.lasting(entry, line).await?.keep_up().await?;
        match untold.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Until the connection is closed or forgotten.
async fn keep(
    (upstream, line): (Weak<Upstream>, Weak<Line>),
    world: Weak<WorldCell>,
    server: ServerIdentity,
    mut changes: watch::Receiver<u64>,
) {
    let mut pause = LOOK;
    loop {
        let wanted = {
            let (Some(upstream), Some(line)) = (upstream.upgrade(), line.upgrade()) else { return };
            let Some(world) = world.upgrade() else { return };
            match upstream.keep_up(&line, &world, &server).await {
                Ok(()) => pause = LOOK,
                Err(NotUsable::Upstream(UpstreamError::Closed)) => return,
                Err(error) => {
                    tracing::warn!(%server, %error, "subscriptions are not in force");
                    pause = (pause * 2).min(SELDOM);
                }
            }
            !line.connection.followed().wanted().is_empty()
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause), if wanted => {}
        }
    }
}
