"""The hive in a browser: pages, drawings and a person's actions; and the snapshot that `hivemind top` shows, too."""
