"""Past revisions tried again, and what another Triton makes of the same study."""
