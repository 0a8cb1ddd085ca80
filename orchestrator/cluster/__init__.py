"""Everything that knows Ray; nothing outside this package imports it."""
