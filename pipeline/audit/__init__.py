"""The delivery audit: a comparison of sent and received messages, once or beside production."""
