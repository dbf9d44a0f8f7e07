//! Portals, sessions and devices on reactors
