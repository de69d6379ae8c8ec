"""Jobs as documents over any versioned store."""
