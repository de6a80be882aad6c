"""The journal, and how a start reads it and everything else back."""
