//! degraded
