"""An examination of home, machine, daemon, broker and topics, for ``tidegate doctor``.

``home``, ``machine``, ``daemon``, ``clocks`` and ``topics`` decide: facts in, findings out, no I/O.
``examine`` asks the questions, ``broker`` those of the admin interface.
"""
