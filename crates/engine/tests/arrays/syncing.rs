//! syncing
