"""What `outrider doctor` makes of what it was told and what it measured. Asks nobody, prints
nothing."""
