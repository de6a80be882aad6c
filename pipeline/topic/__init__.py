"""Reading a topic's entries without a consumer, from bookies or through a broker. No Spark in here."""
