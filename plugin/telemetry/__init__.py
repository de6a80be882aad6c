"""The daemon's view of itself: metrics, readiness, the status report, and the HTTP that serves them."""
