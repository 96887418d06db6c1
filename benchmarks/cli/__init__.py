"""The command ``captionbench``: one module a subcommand."""
