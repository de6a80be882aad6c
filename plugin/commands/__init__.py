"""The commands of ``tidegate``, a module each, with a ``register(app)`` that adds its own."""
