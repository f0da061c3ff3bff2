//! Rules that derive services and endpoints from resources
