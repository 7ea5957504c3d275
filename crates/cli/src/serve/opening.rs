//! Opening the store that the settings name.

use std::sync::Arc;
use anyhow::{Result, bail};
use rejoin::core::Timestamp;
use rejoin::core::limits::LogBounds;
use rejoin::store::{MemoryStore, Store};
use crate::settings::{Settings, StoreChoice};
