"""Loads a converted checkpoint with RMSNorm in place of LayerNorm."""
