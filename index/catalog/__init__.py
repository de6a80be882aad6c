"""All subscriptions of one data directory, and the background work on them."""
