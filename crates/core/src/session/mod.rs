//! Session machine.
