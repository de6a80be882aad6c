"""The stand for benches on a real broker: broker, our daemon, producers, consumers, and the JVM alone."""
