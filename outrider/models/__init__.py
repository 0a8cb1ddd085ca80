"""Models behind one protocol; import `load_model` from `outrider.models.registry`."""
