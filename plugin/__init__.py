"""The daemon beside a Pulsar broker, its protocol, and the tools around them."""
