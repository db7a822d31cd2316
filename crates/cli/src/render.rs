//! A [`Report`](crate::report::Report) as text.

pub(crate) mod connect;
pub(crate) mod detail;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod mdstat;
pub(crate) mod paths;
pub(crate) mod units;
